"""The command line: options in, text and exit codes out."""
