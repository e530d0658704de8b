"""Checks of `profagent doctor`: facts in, findings out. Only `cli` and `host` read files or ask a board."""
