"""The simulated board: a pretend NPU that writes true JOB directories."""
