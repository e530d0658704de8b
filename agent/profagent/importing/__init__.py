"""JOB directories taken in: into their own database, or a workspace."""
