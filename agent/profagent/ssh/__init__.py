"""An SSH connection to a board, as people expect it of `ssh`; nothing of profiling."""
