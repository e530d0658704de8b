"""What holds for every test: generated examples may be slow on a loaded machine, and the same failure comes again."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("project")
