"""What is a JOB, what is a log of it, and when it is complete."""
