"""Capturing a board: its mirror, and its rows."""
