"""The wire contract between board and host, and the code generated from it."""
