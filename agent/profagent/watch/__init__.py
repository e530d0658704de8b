"""Live lines of a board."""
