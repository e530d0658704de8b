"""What no public source tells of a JOB's files, and what a JOB itself tells about it."""
