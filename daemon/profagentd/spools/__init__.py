"""Spools, the collections that the daemon writes itself: subscribed operators, marks, metrics."""
