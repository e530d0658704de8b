"""A daemon that waits less for what comes with mere time, so that a test does not wait for that each time.

Arguments: those of `profagentd`. LINK_TIMES: so many times as fast it finds that its link is dead.
"""

from __future__ import annotations

import os
import sys
from typing import Any
from unittest.mock import patch

from profagentd import main as command

_serve = command._serve


def faster(options: Any, times: int) -> list[tuple[str, Any]]:
    """The same settings of gRPC, with less time."""
    return [(name, value // times if name.endswith("_ms") else value) for name, value in options]


def hurry() -> None:
    """A JOB is finished soon after its last log, a root that is back is soon found, and room is looked for often."""
    from profagentd.follow import client, registry, server, watcher
    from profagentd.retention import losses, reaper

    registry.FINISHED_AFTER_S = 0.3
    registry.TICK_S = losses.LOOK_S = 0.1
    watcher.SEARCH_S = 1.0
    reaper.OVER_S = reaper.RETRY_S = 0.5
    client.RETRY_AFTER_S = 0.2
    times = int(os.environ.get("LINK_TIMES", "1"))
    server._OPTIONS = faster(server._OPTIONS, times)
    for name in ("HEARTBEAT_S", "SILENCE_S"):
        setattr(client, name, getattr(client, name) / times)


def hurried(*arguments: Any) -> None:
    """Serve so; gRPC is imported when `main` has said how."""
    hurry()
    _serve(*arguments)


if __name__ == "__main__":
    with patch.object(command, "_serve", hurried):
        sys.exit(command.main())
