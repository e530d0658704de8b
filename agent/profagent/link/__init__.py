"""The connection to a board: what is held, what is asked for, and when to try again."""
