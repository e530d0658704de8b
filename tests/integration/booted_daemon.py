"""A daemon of a board that was started anew: its boot id is another one.

Arguments: that id, then those of `profagentd`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from profagentd import service as daemon
from profagentd.examine import identify
from profagentd.main import main
from tests.integration.hurried_daemon import hurry

if TYPE_CHECKING:
    from profagent_wire.v1 import board_pb2 as wire


def _booted(configured: str, filesystem: Path) -> wire.Description:
    description = identify(configured, filesystem)
    description.boot_id = sys.argv[1]
    return description


if __name__ == "__main__":
    hurry()
    with patch.object(daemon, "identify", _booted):
        sys.exit(main(sys.argv[2:]))
