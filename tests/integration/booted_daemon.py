"""A daemon of a board that was started anew: its boot id is another one.

Arguments: that id, then those of `profagentd`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from profagentd import service as daemon
from profagentd.examine import Identity, identify
from profagentd.follow import registry
from profagentd.main import main
from tests.integration.hurried_daemon import FINISHED_AFTER_S


def _booted(configured: str, filesystem: Path) -> Identity:
    return replace(identify(configured, filesystem), boot_id=sys.argv[1])


if __name__ == "__main__":
    registry.FINISHED_AFTER_S = FINISHED_AFTER_S
    with patch.object(daemon, "identify", _booted):
        sys.exit(main(sys.argv[2:]))
