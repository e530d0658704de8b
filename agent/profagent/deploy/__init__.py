"""What goes to a board and how it stands there: pure, the commands do the work."""
