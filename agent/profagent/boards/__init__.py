"""Boards by name, and the ways to reach them."""
