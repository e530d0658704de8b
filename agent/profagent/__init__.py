"""Host side of profagent."""

from __future__ import annotations

import sys

# The distribution installs on the board's older Python, too, for the daemon alone.
if sys.version_info < (3, 11):  # noqa: UP036 - this is what tells an older one
    sys.exit("profagent needs Python 3.11 or later; this Python has profagentd only")

__version__ = "0.2.0"
