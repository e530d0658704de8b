"""`record`: a headless capture of boards into a workspace, each on its own, all through one writer."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from profagent.errors import UsageError
from profagent.record.board_record import BoardRecord, RecordOptions
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["RecordOptions", "record"]


async def record(options: RecordOptions, tell: Callable[[str], None], stop: asyncio.Event) -> dict[str, Any]:
    """Record until the ends or `stop`; returns the summary of the one board's session, or of several.

    Raises UsageError and StoreError, and of a board that is the only one what ends its capture.
    """
    await _check(options)
    with options.workspace.locked():
        async with Store(options.workspace.database) as store:
            boards = [BoardRecord(address, options, store, tell) for address in options.addresses]
            await _run(boards, options.for_s, stop)
            database = str(options.workspace.database)
            if len(boards) == 1:
                return {**await boards[0].summary(), "database": database}
            sessions = [await board.outcome() for board in boards]
    return {"sessions": sessions, "total": _total(sessions), "database": database}


async def _check(options: RecordOptions) -> None:
    """Raises UsageError for a board that is named twice, or whose keys cannot be used."""
    targets = Counter(options.access.named(address).address for address in options.addresses)
    for target, count in targets.items():
        if count > 1:
            raise UsageError(f"the board {target} is named {count} times", hint="name each board once")
    for address in options.addresses:
        await asyncio.to_thread(options.access.check, address)


async def _run(boards: Sequence[BoardRecord], for_s: float | None, stop: asyncio.Event) -> None:
    """Let every board run to its end; when its time is over or at `stop` all of them end."""
    try:
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(_stop_all(boards, for_s, stop))
            await asyncio.wait([group.create_task(board.run()) for board in boards])
            stopping.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _stop_all(boards: Sequence[BoardRecord], for_s: float | None, stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(for_s):
            await stop.wait()
    except TimeoutError:
        pass
    for board in boards:
        board.stop()


def _total(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums over the boards; `exit_code` is the smallest of theirs that is not 0."""
    reached = [session for session in sessions if session["session"] is not None]
    records: Counter[str] = Counter()
    ledger: dict[str, Counter[str]] = {"loss": Counter(), "note": Counter()}
    for session in reached:
        records.update(session["records"])
        for grade, reasons in session["ledger"].items():
            ledger[grade].update(reasons)
    return {
        "boards": len(sessions),
        "reached": len(reached),
        "jobs": sum(len(session["jobs"]) for session in reached),
        "bytes": sum(session["bytes"] for session in reached),
        "records": records,
        "ledger": ledger,
        "complete": all(session["complete"] for session in sessions),
        "exit_code": min((session["exit_code"] for session in sessions if session["exit_code"]), default=0),
    }
