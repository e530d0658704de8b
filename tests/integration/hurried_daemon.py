"""A daemon for which a JOB is finished soon after its last log, so that a test does not wait for that each time.

Arguments: those of `profagentd`.
"""

from __future__ import annotations

import sys

from profagentd.follow import registry
from profagentd.main import main

FINISHED_AFTER_S = 0.3

if __name__ == "__main__":
    registry.FINISHED_AFTER_S = FINISHED_AFTER_S
    sys.exit(main())
