"""Entry point of `python -m profagentd`, for boards without the command."""

from __future__ import annotations

import sys

from profagentd.main import main

sys.exit(main())
