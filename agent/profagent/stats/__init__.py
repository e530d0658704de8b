"""What takes the time, and how that went over sessions."""
