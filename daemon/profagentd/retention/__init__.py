"""What is delivered, what is deleted, and what was lost."""
