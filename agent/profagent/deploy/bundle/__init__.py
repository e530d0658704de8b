"""A daemon with a Python, loader and libraries of its own, for boards that have none: made from what was unpacked."""
