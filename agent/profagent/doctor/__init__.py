"""Checks of `profagent doctor`: facts in, findings out. Nothing here opens or asks anything."""
