"""Keys and certificates of boards and hosts."""
