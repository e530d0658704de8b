"""Settings of nights, and their results: for each board, and for all."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from profagent.errors import UsageError
from profagent.export.formats import FORMATS
from profagent.tables.comparability import allowed_codes
from profagent.tables.provenance import coverage_line
from profagent.tables.table import counted, markdown, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from profagent.stats.trend import BoardTrend
    from profagent.tables.slo import Judgement

# The default of `schedule`, in the form of systemd's OnCalendar.
SCHEDULE = "*-*-* 02:00"
_EXAMPLE = """\
# What `profagent nightly run` does. Every key that is commented out has the value that it has without it.

# schedule = "*-*-* 02:00"    # as systemd's OnCalendar takes it; `profagent nightly init` sets the timer to it
# workspace = "~/.local/share/profagent"  # where captures are kept; relative to this file
# time_limit = "1h"           # for each board, with all its attempts
# attempts = 3                # a board that is away, or reboots, is tried so often
# wait = "1m"                 # before the second attempt; twice as long before each later one
@EXPORTS@
# reports = ["page", "junit", "report"] # files beside each night, in the workspace's nightly/: HTML, JUnit XML, and
#                              # `profagent report` of each session
# baseline = ""               # a name of `profagent baseline`, for boards that do not name their own
# lake = ""                   # sessions that have ended are pushed there: a folder that hosts share, relative to this
#                              # file, or s3://BUCKET/PREFIX; without it $PROFAGENT_LAKE, or what the workspace sets
# counter_map = ""            # a TOML file that `profagent calibrate` wrote; relative to this file
fail_if = ["latency.median>+3%", "layer.median>+5%"]   # conditions of `profagent diff`
# slo = []                    # objectives, such as "frame.p99 < 33ms", that each board's night is to meet
# allow = []                  # rules of comparability that `diff --allow` overrides, such as "interval"

# [retention]                 # rules of `profagent gc`, all of which must allow it; without any, nothing goes
# older_than = "60d"
# keep_last = 14
# max_size = "50G"
# where = []                  # conditions of `profagent sessions`, such as "label=place=lab"

# [tell]                      # beside the exit code
# webhook = ""                # the verdict is posted there as JSON
# mail = []                   # addresses that get the verdict, with the page
# mail_from = ""              # without it, what sendmail takes
# sendmail = ["/usr/sbin/sendmail", "-t", "-oi"]  # takes the mail on its standard input
# command = []                # and is on the standard input of this, as JSON

[[boards]]
name = "lab1"                 # of `profagent boards`, or an address; or group = "rack3", all boards of that group
# baseline = ""
# labels = {}
record = { for = "10m" }      # or until_finished = true; more = ["--backlog"] adds options of `profagent record`,
                              # as more = ["--keep-when", "frame > 1.5 * p99"], which makes it a flight recorder

# [[boards]]
# name = "lab2"
# collect = { main = "out/main", project = ".", arguments = ["input.bin"], interval = 1, more = [] }
"""

LINE_WIDTH = 120
_EXPORTS = "# exports = []                # of each session: "
Reports = Literal["page", "junit", "report"]
SENDMAIL = ["/usr/sbin/sendmail", "-t", "-oi"]


class NightlyRecord(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a capture by `profagent record`: the programs of the board run by themselves."""

    for_: str | None = msgspec.field(name="for", default=None)
    until_finished: bool = False
    more: list[str] = []


class NightlyCollect(msgspec.Struct, forbid_unknown_fields=True):
    """Options of a capture by `profagent collect`, which runs a program on the board."""

    main: str
    project: str | None = None
    acl_json: str | None = None
    interval: int | None = None
    arguments: list[str] = []
    more: list[str] = []


class NightlyBoard(msgspec.Struct, forbid_unknown_fields=True):
    """Table [[boards]]: a board or a group, and one of the two kinds of capture."""

    name: str = ""
    group: str = ""
    record: NightlyRecord | None = None
    collect: NightlyCollect | None = None
    baseline: str = ""
    labels: dict[str, str] = {}


class NightlyRetention(msgspec.Struct, forbid_unknown_fields=True):
    """Table [retention]: rules of `profagent gc`."""

    older_than: str | None = None
    keep_last: int | None = None
    max_size: str | None = None
    where: list[str] = []


class NightlyRecipients(msgspec.Struct, forbid_unknown_fields=True):
    """Table [tell]: the recipients of the verdict."""

    webhook: str = ""
    mail: list[str] = []
    mail_from: str = ""
    sendmail: list[str] = msgspec.field(default_factory=lambda: [*SENDMAIL])
    command: list[str] = []


class Nightly(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of nightly.toml; durations, ages and sizes are texts in the form that commands accept."""

    boards: list[NightlyBoard]
    schedule: str = SCHEDULE
    workspace: str | None = None
    time_limit: str = "1h"
    attempts: int = 3
    wait: str = "1m"
    exports: list[str] = []
    reports: list[Reports] = msgspec.field(default_factory=lambda: ["page", "junit", "report"])
    baseline: str = ""
    lake: str = ""
    counter_map: str = ""
    fail_if: list[str] = []
    slo: list[str] = []
    allow: list[str] = []
    retention: NightlyRetention = msgspec.field(default_factory=NightlyRetention)
    tell: NightlyRecipients = msgspec.field(default_factory=NightlyRecipients)


def example(schedule: str | None) -> str:
    """Return settings with every key explained, and with `schedule` unless that is None."""
    formats = wrap(", ".join(f'"{name}"' for name in FORMATS), LINE_WIDTH - len(_EXPORTS))
    below = "\n# " + " " * (len(_EXPORTS) - len("# "))
    text = _EXAMPLE.replace("@EXPORTS@", _EXPORTS + below.join(formats))
    if schedule is None:
        return text
    return text.replace(f'# schedule = "{SCHEDULE}"', f"schedule = {json.dumps(schedule, ensure_ascii=False)}")


def read_settings(text: str, file: str) -> Nightly:
    """Return the settings of a file's text. Raises UsageError that names the faulty key."""
    hint = "`profagent nightly init` writes one with every key"
    try:
        settings = msgspec.convert(tomllib.loads(text), Nightly)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise UsageError(f"{file}: {error}", hint=hint) from error
    for fault in _faults(settings):
        raise UsageError(f"{file}: {fault}", hint=hint)
    return settings


def each_board(boards: Sequence[NightlyBoard], group: Callable[[str], Sequence[str]]) -> list[NightlyBoard]:
    """Return the boards with every group replaced by its boards.

    A board's own entry takes precedence, then the first group that has the board.
    """
    found = {board.name: board for board in boards if board.name}
    for board in boards:
        for name in group(board.group) if board.group else ():
            found.setdefault(name, msgspec.structs.replace(board, name=name, group=""))
    return [*found.values()]


def _faults(settings: Nightly) -> list[str]:
    names = [board.name or board.group for board in settings.boards]
    faults = [f"board {name} is there twice" for name in sorted({*names}) if names.count(name) > 1]
    if not names:
        faults.append("there are no boards")
    if settings.attempts < 1:
        faults.append("attempts is less than 1")
    if settings.tell.webhook and not settings.tell.webhook.startswith(("http://", "https://")):
        faults.append("webhook is no http:// or https:// address")
    try:
        allowed_codes(settings.allow)
    except UsageError as error:
        faults.append(f"allow: {error}; {error.hint}")
    unknown = [name for name in settings.exports if name not in FORMATS]
    faults += [f"exports: {name!r} is none of {', '.join(FORMATS)}" for name in unknown]
    addresses = [each for each in (*settings.tell.mail, settings.tell.mail_from) if each]
    faults += [f"{each!r} is no mail address" for each in addresses if "@" not in each or not each.isprintable()]
    if settings.tell.mail and not settings.tell.sendmail:
        faults.append("mail needs sendmail")
    if not all(bool(board.name) is not bool(board.group) for board in settings.boards):
        faults.append("each of boards needs either a name or a group")
    for board in settings.boards:
        who = board.name or board.group
        if (board.record is None) == (board.collect is None):
            faults.append(f"board {who} needs either record or collect")
        if board.record is not None and board.record.for_ is None and not board.record.until_finished:
            faults.append(f"record of board {who} has no end: for or until_finished")
    return faults


class NightVerdict(IntEnum):
    """Verdict of a board's night, in the order of severity; the largest is the verdict of the whole night."""

    GOOD = 0
    UNDECIDED = 1  # it ran, but a comparison is missing or could not be decided
    INCOMPLETE = 2
    AWAY = 3
    FAILED = 4
    SLOWER = 5
    EXCEEDED = 6  # an objective of `slo` is

    @property
    def word(self) -> str:
        """Verdict in lower case, as reports and documents show it."""
        return self.name.lower()


# Verdicts that are no error of another command have the general exit code.
_EXIT_CODES = {
    NightVerdict.INCOMPLETE: 4,
    NightVerdict.AWAY: 3,
    NightVerdict.FAILED: 1,
    NightVerdict.SLOWER: 1,
    NightVerdict.EXCEEDED: 1,
}


@dataclass(frozen=True, slots=True)
class Slower:
    """Quantity for which a condition held: a latency or layer with its name, and its increase.

    `percent` is None if the base is 0.
    """

    condition: str
    what: str
    percent: float | None

    def __str__(self) -> str:
        """Return the quantity and its increase in percent."""
        return self.what if self.percent is None else f"{self.what} {self.percent:+.1f} %"


@dataclass(frozen=True, slots=True)
class Compared:
    """Comparison of a session with a baseline or an earlier night.

    `problem` says why there was none. `undecided` lists the conditions that could not be decided and why, if others
    could, or why nothing can be told. `is_missing` says that the baseline does not exist: a fault of the settings.
    """

    against: str
    session: int | None
    slower: tuple[Slower, ...] = ()
    differences: tuple[str, ...] = ()
    can_tell: bool = True
    problem: str = ""
    undecided: tuple[str, ...] = ()
    is_missing: bool = False

    @property
    def is_thinned(self) -> bool:
        """True if a flight recorder kept too few inferences for a comparison."""
        return not self.can_tell and bool(self.undecided)

    def lines(self) -> Iterator[str]:
        """Yield the comparison as lines for people."""
        against = self.against if self.session is None else f"{self.against} (session {self.session})"
        if self.problem:
            yield f"not compared with {against}: {self.problem}"
            return
        if not self.can_tell and not self.is_thinned:
            yield f"too few inferences to tell anything beside {against}"
        elif not self.slower and not self.undecided:
            yield f"as {against}"
        yield from (f"beside {against}: {slower}, and {slower.condition} holds" for slower in self.slower)
        yield from (f"nobody can tell beside {against}: {line}" for line in self.undecided)
        yield from (f"differs from {against}: {line}" for line in self.differences)


@dataclass(slots=True)
class BoardOutcome:
    """Result of a board's night; it is filled in while the night proceeds."""

    board: str
    session: int | None = None
    attempts: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    is_away: bool = False
    is_incomplete: bool = False
    is_lost: bool = False
    """True if the board was restarted while its program ran."""
    compared: list[Compared] = field(default_factory=list)
    is_simulated: bool = False
    coverage: Mapping[str, Any] | None = None
    """Coverage of the capture, in the form of `coverage_of`; None if there is none."""
    trends: list[BoardTrend] = field(default_factory=list)
    """Trends of the session's models over the board's nights; empty if these are too few."""
    slo: Sequence[Judgement] = ()
    """Verdicts on the objectives of the settings."""

    @property
    def shown_board(self) -> str:
        """Name of the board, marked if its figures are simulated."""
        return f"{self.board} [simulated]" if self.is_simulated else self.board

    @property
    def verdict(self) -> NightVerdict:
        """Most severe verdict that the result allows."""
        judged = {each.verdict for each in self.slo}
        if "exceeded" in judged:
            return NightVerdict.EXCEEDED
        if any(each.slower for each in self.compared):
            return NightVerdict.SLOWER
        if self.is_away:
            return NightVerdict.AWAY
        if self.is_incomplete:
            return NightVerdict.INCOMPLETE
        if self.problems:
            return NightVerdict.FAILED
        is_thinned = any(each.is_thinned for each in self.compared)
        # The nights together tell what a comparison of two of them cannot.
        is_notified = any(each.can_tell for each in self.compared) or (is_thinned and bool(self.trends))
        is_undecided = any(each.problem or (each.undecided and not each.is_thinned) for each in self.compared)
        is_open = "unknown" in judged or is_undecided
        return NightVerdict.GOOD if is_notified and not is_open else NightVerdict.UNDECIDED

    def lines(self) -> Iterator[str]:
        """Yield the session, its coverage, the problems and the comparisons as lines for people."""
        session = "no session" if self.session is None else f"session {self.session}"
        yield f"{session}, {counted(self.attempts, 'attempt')}, {self.seconds:.0f} s"
        if line := coverage_line(self.coverage):
            yield line
        yield from self.problems
        yield from (line for each in self.slo for line in each.lines())
        if self.verdict is NightVerdict.UNDECIDED and not self.compared:
            yield "nothing to compare with: no good night before, and no baseline"
        for compared in self.compared:
            if not compared.is_missing:  # its problem is in `problems` already
                yield from compared.lines()
        for trend in self.trends:
            yield from trend.finding_lines()

    @property
    def headline(self) -> str:
        """Name of the board, with its worst finding in a few words."""
        match self.verdict:
            case NightVerdict.EXCEEDED:
                return f"{self.shown_board}: {'; '.join(line.removeprefix('EXCEEDED ') for line in _exceeded(self))}"
            case NightVerdict.SLOWER:
                found = dict.fromkeys(str(each) for one in self.compared for each in one.slower)
                return f"{self.shown_board}: {', '.join(found)}"
            case NightVerdict.FAILED | NightVerdict.INCOMPLETE:
                return f"{self.shown_board}: {self.problems[0]}"
        return self.shown_board

    def document(self) -> dict[str, Any]:
        """Return the result as JSON fields."""
        facts = {name: getattr(self, name) for name in ("board", "session", "attempts", "problems", "coverage")}
        facts |= {
            "compared": [asdict(each) for each in self.compared],
            "trends": [asdict(each) for each in self.trends],
        }
        more = {"simulated": self.is_simulated, "slo": [each.document() for each in self.slo]}
        return {**facts, **more, "verdict": self.verdict.word, "seconds": round(self.seconds, 1)}


@dataclass(frozen=True, slots=True)
class Night:
    """Results of all boards; `run` is the night's name, by the host's clock, and `remarks` concern no single board."""

    run: str
    outcomes: Sequence[BoardOutcome]
    remarks: Sequence[str] = ()

    @property
    def verdict(self) -> NightVerdict:
        """Most severe verdict of all boards."""
        return max((outcome.verdict for outcome in self.outcomes), default=NightVerdict.UNDECIDED)

    @property
    def exit_code(self) -> int:
        """Exit code of `profagent nightly run`."""
        return _EXIT_CODES.get(self.verdict, 0)

    def document(self) -> dict[str, Any]:
        """Return the night as JSON fields."""
        return {
            "run": self.run,
            "verdict": self.verdict.word,
            "headlines": self.headlines(),
            "boards": [outcome.document() for outcome in self.outcomes],
            "remarks": list(self.remarks),
        }

    def headlines(self) -> list[str]:
        """Return one line for each verdict but GOOD, the most severe first, with the boards and their findings.

        If all boards are good, the only line says so.
        """
        found = sorted({outcome.verdict for outcome in self.outcomes} - {NightVerdict.GOOD}, reverse=True)
        lines = [
            f"{verdict.word.upper()}: {'; '.join(each.headline for each in self.outcomes if each.verdict is verdict)}"
            for verdict in found
        ]
        return lines or ["GOOD: all boards"]


def report_lines(night: Night, *, as_markdown: bool) -> Iterator[str]:
    """Yield the verdict, then each board with its session, comparisons and problems, then the remarks."""
    shown = markdown if as_markdown else printable
    for line in map(shown, night.headlines()):
        yield f"**{line}**  " if as_markdown else line
    yield ""
    for outcome in night.outcomes:
        yield f"{'### ' if as_markdown else ''}{shown(outcome.shown_board)}: {outcome.verdict.word}"
        bullet = "- " if as_markdown else "  "
        yield from (bullet + shown(line) for line in outcome.lines())
    yield from map(shown, night.remarks)


def junit_cases(night: Night) -> list[tuple[str, str | None]]:
    """Return a test case for each board: its name, and why it failed, or None."""
    slower = [[line for each in one.compared if each.slower for line in each.lines()] for one in night.outcomes]
    return [
        (outcome.shown_board, "; ".join([*outcome.problems, *_exceeded(outcome), *lines]) or None)
        for outcome, lines in zip(night.outcomes, slower, strict=True)
    ]


def _exceeded(outcome: BoardOutcome) -> list[str]:
    return [line for each in outcome.slo if each.verdict == "exceeded" for line in each.lines()]
