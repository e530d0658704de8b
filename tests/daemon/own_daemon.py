"""A daemon in the test's own process, by a clock that the test chooses."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagentd.config import DaemonConfig
from profagentd.loop import SystemClock
from profagentd.service import ServiceOptions, serve
from tests.daemon.waiting import until

if TYPE_CHECKING:
    from profagentd.loop import DaemonClock


@asynccontextmanager
async def own_daemon(
    root: Path, clock: DaemonClock | None = None, *, scan: bool = False, **settings: Any
) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    """Its address and its task; it is cancelled at the end. SIGTERM to this process ends it in good order.

    It keeps no spools unless the settings say so.
    """
    with tempfile.TemporaryDirectory(prefix="profagentd-state-") as folder:
        socket = Path(folder) / "s"
        usual: dict[str, Any] = {"state": folder, "scan": scan, "spools": ()}
        config = DaemonConfig((str(root),), f"unix:{socket}", **{**usual, **settings})
        daemon = asyncio.create_task(serve(ServiceOptions(config), clock or SystemClock()))
        try:
            await until(socket.exists)
            yield config.listen, daemon
        finally:
            daemon.cancel()
            await asyncio.gather(daemon, return_exceptions=True)
