"""Running of asynchronous commands, until they end or a signal stops them; remarks on links and boards."""

from __future__ import annotations

import asyncio
import gc
import os
import shlex
import shutil
import signal
import sys
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from profagent.errors import RefusedError, UnreachableError
from profagent.link.backoff import retrying
from profagent.link.boards_file import BoardNames
from profagent.tables.table import printable, time_text
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator

    from profagent.errors import ProfagentError
    from profagent.link.messages import Board


NAME = "profagent"
REPEATED_S = 30.0
# A clock that is off by more than this was never set, or set wrongly.
FAR_OFF_S = 86_400


def remarks(board: Board, role: str, host_wall_us: int) -> Iterator[str]:
    """Yield remarks about the trust in a board that introduced itself at `host_wall_us` of this host's clock."""
    name = BoardNames.known().of(board.identity, board.hostname)
    if board.insecure:
        yield (
            f"{name} is open (--insecure): whoever reaches it may follow it, and nothing proves that it is the board;"
            " give its daemon certificates, see docs/reference/security.md"
        )
    if role == "viewer" and board.deletes:
        yield (
            f"to {name} this host is a viewer: what it copies does not count as delivered, and is not deleted there;"
            " for that it needs a certificate of `profagent keys issue host --role operator`"
        )
    if abs(board.clocks.wall_us - host_wall_us) > FAR_OFF_S * US_PER_S:
        day, host_day = (time_text(each, "%Y-%m-%d") for each in (board.clocks.wall_us, host_wall_us))
        yield (
            f"the clock of {name} shows {day}, this host's {host_day}: times of the"
            " capture are the board's, and a clock past a certificate's end lets nobody in; set it with `date -s`"
        )


class LinkRemarks:
    """Remarks on a lost link that is being retried: equal ones at most once in REPEATED_S."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        # Text of the last remark, and when it was made.
        self._said = ""
        self._said_s = 0.0

    def linked(self) -> None:
        """Forget the last remark: after a link, every loss is news."""
        self._said = ""

    def gone(self, error: ProfagentError, wait_s: float) -> str | None:
        """Return the remark that is due, if any; with a remedy if waiting does not help."""
        now_s = self._now_s()
        if self._said == str(error) and now_s - self._said_s < REPEATED_S:
            return None
        self._said, self._said_s = str(error), now_s
        line = f"{error}; {retrying(wait_s)}"
        return f"{line}; {error.hint}" if isinstance(error, RefusedError) else line


@asynccontextmanager
async def interrupted_by(stop: asyncio.Event, before: str) -> AsyncIterator[None]:
    """Cancel the body when `stop` is set, and raise UnreachableError: it was stopped `before` something."""
    task = asyncio.current_task()
    assert task is not None

    async def interrupt() -> None:
        await stop.wait()
        task.cancel()

    watching = asyncio.create_task(interrupt())
    try:
        yield
    except asyncio.CancelledError:
        # Another cancellation may have come at the same time: it has precedence, and must not be swallowed.
        if stop.is_set() and task.uncancel() == 0:
            raise UnreachableError(f"the command was stopped before {before}", hint="start it again") from None
        raise
    finally:
        watching.cancel()


P = ParamSpec("P")
T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Standard output and standard error.
_SAID = (1, 2)
# A second SIGTERM within this time is the same request: `timeout` signals the process, and then its group.
SAME_WISH_S = 0.5
# A batch makes some ten thousand objects, none of them in a cycle: the collector runs less often than after every 700
# objects, its default. Objects from before the command are code, which is frozen and never searched.
OBJECTS_BETWEEN_COLLECTIONS = (50_000, 10, 10)


def program() -> str:
    """Return the shell's call of this program: `profagent` if that is on its PATH, else the path of the call."""
    called, found = Path(sys.argv[0]), shutil.which(NAME)
    if called.name != NAME or not called.exists() or (found is not None and called.samefile(found)):
        return NAME
    return shlex.quote(str(called))


def installing(package: str) -> str:
    """Return the command that installs a package beside this program, by pipx or by pip."""
    if Path(sys.prefix).parts[-3:-1] == ("pipx", "venvs"):
        return f"pipx inject {Path(sys.prefix).name} {package}"
    return f"{shlex.quote(sys.executable)} -m pip install {package}"


def tell(text: str) -> None:
    """Print a remark for the user on standard error."""
    # While a progress bar is visible, rich replaces sys.stderr; click's own stream would write into the bar.
    bar = sys.stderr if hasattr(sys.stderr, "rich_proxied_file") else None
    click.echo(printable(text), file=bar, err=True)


def _silence(descriptors: Iterable[int]) -> None:
    """Redirect output to the null device: writing to a terminal that has ended would raise an error."""
    with Path(os.devnull).open("wb") as nowhere:
        for each in descriptors:
            os.dup2(nowhere.fileno(), each)


def run_until_stopped(command: Callable[[asyncio.Event], Awaitable[T]]) -> T:
    """Run a command; the first Ctrl-C or SIGTERM sets its event, the second cancels it unless it has ended.

    The end of its terminal (SIGHUP) also sets the event, unless the signal is ignored (nohup).
    """
    # A signal that the caller ignores stays ignored: `nohup` does so with SIGHUP.
    signals = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    # A terminal that has ended no longer answers isatty: which outputs were one is asked now.
    terminals = [each for each in _SAID if os.isatty(each)]

    async def run() -> T:
        stop = asyncio.Event()
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        wished_at = loop.time()

        def on_signal(number: int) -> None:
            nonlocal wished_at
            if number == signal.SIGHUP:
                _silence(each for each in terminals if not os.isatty(each))
            elif stop.is_set() and (number == signal.SIGINT or loop.time() >= wished_at + SAME_WISH_S):
                task.cancel()
            if not stop.is_set():
                wished_at = loop.time()
            stop.set()

        for each in signals:
            loop.add_signal_handler(each, on_signal, each)
        result = await command(stop)
        if stop.is_set():
            # The command has ended as requested: a second signal must not suppress its summary and its exit code.
            for each in signals:
                loop.remove_signal_handler(each)
                signal.signal(each, signal.SIG_IGN)
        return result

    before = gc.get_threshold()
    gc.set_threshold(*OBJECTS_BETWEEN_COLLECTIONS)
    gc.freeze()
    try:
        return asyncio.run(run())
    except asyncio.CancelledError as error:
        raise click.Abort from error
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def run_to_the_end(work: Callable[[], Awaitable[T]]) -> T:
    """Run work that has no event to stop it: the first signal cancels it, and it cleans up."""

    async def interruptible(stop: asyncio.Event) -> T:
        working = asyncio.ensure_future(work())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
            return await working
        finally:
            stopping.cancel()

    return run_until_stopped(interruptible)


def asynchronous(command: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a command for a coroutine function, which is run to its end."""

    @wraps(command)
    def run(*arguments: P.args, **named: P.kwargs) -> T:
        return run_to_the_end(lambda: command(*arguments, **named))

    return run


# Wider than any table.
_ANY_WIDTH = 1_000_000


def terminal_columns(*, is_wide: bool = False) -> int:
    """Return the width of standard output's terminal, or a huge one for `is_wide`.

    0 means that it is no terminal: a table is then plain and complete.
    """
    if not sys.stdout.isatty():
        return 0
    return _ANY_WIDTH if is_wide else shutil.get_terminal_size().columns
