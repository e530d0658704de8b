"""Checks of `profagent doctor`: facts in, findings out. Only `examining` and `facts` read files or ask a board."""
