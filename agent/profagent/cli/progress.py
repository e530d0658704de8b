"""Progress of long work on standard error: a bar with rate and time left on a terminal, else a line now and then."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress as Bar

LINE_EACH_S = 10.0
REDRAWS_PER_S = 4
BAR_COLUMNS = 20
BYTES = "MB"
BYTES_PER_MB = 1e6
QUIET = "profagent.quiet"


class Progress:
    """Display of progress, called with the amounts done and in total, as often as convenient; a full bar disappears."""

    def __init__(
        self,
        what: str,
        unit: str,
        *,
        is_shown: bool = True,
        is_bar: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a display; `unit` names the counted things, BYTES for bytes."""
        self.is_shown = is_shown
        self._what, self._unit, self._is_bar, self._now_s = what, unit, is_bar, now_s
        # When the last line was printed.
        self._said_s = now_s()
        # Time of the first call, and the amount done then: the rate does not count earlier work.
        self._began: tuple[float, float] | None = None
        # Bar on the terminal, while it is visible.
        self._bar: Bar | None = None

    def __call__(self, done: float, total: float) -> None:
        """Show that `done` of `total` is done; a total of 0 means not known, and shows nothing."""
        if not self.is_shown or not total:
            return
        if self._began is None:
            self._began = (self._now_s(), done)
        if self._is_bar:
            self._draw(done, total)
        elif self._now_s() - self._said_s >= LINE_EACH_S:
            self._said_s = self._now_s()
            rate = self._rate(done)
            left = f", {(total - done) / rate:,.0f} s left" if rate else ""
            click.echo(f"{self._what}: {self._figures(done, total)}{left}", err=True)

    def end(self) -> None:
        """Remove the bar."""
        self._began = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, done: float, total: float) -> None:
        if done >= total:
            self.end()
            return
        # The bar starts after its first update, so that it never shows without figures.
        is_new = self._bar is None
        if self._bar is None:
            self._bar = _bar(self._what)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, figures=self._figures(done, total))
        if is_new:
            self._bar.start()

    def _rate(self, done: float) -> float:
        begun_s, begun = self._began or (0.0, 0.0)
        spent_s = self._now_s() - begun_s
        return max(0.0, done - begun) / spent_s if spent_s > 0 else 0.0

    def _figures(self, done: float, total: float) -> str:
        rate = self._rate(done)
        if self._unit == BYTES:
            per_s = f", {rate / BYTES_PER_MB:,.1f} MB/s" if rate else ""
            return f"{done / BYTES_PER_MB:,.1f} of {total / BYTES_PER_MB:,.1f} MB{per_s}"
        per_s = f", {rate:,.{0 if rate >= 1 else 2}f}/s" if rate else ""
        return f"{done:,.0f} of {total:,.0f} {self._unit}{per_s}"


class JobsProgress:
    """Display of the copied share of the JOBs of several boards, as one sum."""

    def __init__(self, shown: Progress) -> None:
        self.is_shown = shown.is_shown
        self._shown = shown
        # Copied and held bytes by board and JOB.
        self._parts: dict[tuple[str, str], tuple[int, int]] = {}

    def know(self, address: str, job: str, copied: int, held: int) -> None:
        """Set how many bytes of a JOB are copied, of those that it held at the beginning."""
        self._parts[address, job] = (min(copied, held), held)
        self._shown(*map(sum, zip(*self._parts.values(), strict=True)))


def _bar(what: str) -> Bar:
    from rich.console import Console  # noqa: PLC0415 - only a terminal has a bar
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - as above
    from rich.progress import Progress as Bar  # noqa: PLC0415 - as above

    columns = (
        TextColumn(what),
        BarColumn(BAR_COLUMNS),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(compact=True),
    )
    # Remarks on standard error appear above the bar; standard output is not redirected, because it may be data.
    bar = Bar(
        *columns,
        console=Console(stderr=True),
        redirect_stdout=False,
        transient=True,
        refresh_per_second=REDRAWS_PER_S,
    )
    bar.add_task(what, figures="")
    return bar


@contextmanager
def progress(what: str, unit: str) -> Iterator[Progress]:
    """Yield a display for the work inside; it is visible only in a command without --json and --quiet."""
    context = click.get_current_context(silent=True)
    is_shown = context is not None and not (context.params.get("as_json") or context.meta.get(QUIET))
    is_bar = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    shown = Progress(what, unit, is_shown=is_shown, is_bar=is_bar)
    try:
        yield shown
    finally:
        shown.end()
