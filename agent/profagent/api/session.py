"""Sessions of the Python API: tables of what a session has, and answers about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from profagent.advise.advise import advise
from profagent.advise.report import advice_document
from profagent.advise.rules import Language, all_rules
from profagent.api.answers import Answer, answer_of, fields_by, stats_answer, table_of
from profagent.api.arguments import checked
from profagent.api.reading import QueryBounds, SessionDatabase, TemporaryFolder, query_table, view_table
from profagent.api.table import Table
from profagent.api.waiting import wait_for
from profagent.diff.diff import Operand
from profagent.limits import LARGEST_VALUE_BYTES
from profagent.report.report import write_report
from profagent.stats.session_figures import StatsBy
from profagent.stats.stats import stats
from profagent.store.database import reading
from profagent.store.frames import frames_of
from profagent.store.sessions import require_records
from profagent.tables.arrow import Field
from profagent.tables.slo import Objective

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.api.provenance import Provenance
    from profagent.store.frames import Frame, JoinedBy

Unit = Literal["aicore", "aicpu"]
_FINDINGS = (
    *(Field(name, "text") for name in ("rule", "severity", "kind", "model", "title", "finding", "advice", "manual")),
    Field("gain_us", "float64", "us"),
    Field("share", "float64", "%"),
    Field("likely", "int64"),
    Field("per", "text"),
)
_FRAMES = (
    *(Field("process", "int64"), Field("frame", "int64"), Field("joined_by", "text")),
    *(
        Field(name, "float64", "us")
        for name in ("start_us", "end_us", "duration_us", "age_us", "stages_us", "waits_us")
    ),
    *(Field("largest", "text"), Field("largest_us", "float64", "us")),
    *(Field("dropped_before", "int64"), Field("lost_before", "int64")),
)
_VIEWS: Mapping[Unit, str] = {"aicore": "op_records", "aicpu": "aicpu_records"}


@dataclass(frozen=True, slots=True)
class Session:
    """Session of a workspace, or a JOB directory: its `number`, its `database`, and its `provenance`.

    Methods that return a Table or an Answer read the database when they are called, and raise StoreError if that cannot
    be read. Times in columns `…_us` are µs of the board's clock, durations µs.

    >>> import profagent
    >>> profagent.open("lab").session("last").number
    2
    """

    number: int
    database: Path
    provenance: Provenance
    job: str | None = None
    # Of a session that only a lake has: its database is there as long as the session or a table of it is used.
    _folder: TemporaryFolder | None = field(default=None, repr=False, compare=False)

    def layers(self) -> Table:
        """Return the layers of both processors by falling time in an inference, as `stats --by layer`.

        Times are in µs, or in ticks where the clock of the NPU is unknown; shares are % of a model's mean latency.

        >>> import profagent
        >>> table = profagent.open("lab").session().layers()
        >>> table["layer"][0], table["bound by"][0]
        ('conv2', None)
        """
        return self.stats(by="layer").table

    def inferences(self) -> Table:
        """Return the sampled inferences, as the view `inferences`. Raises UsageError if `gc` deleted them.

        >>> import profagent
        >>> profagent.open("lab").session().inferences()["figures"][:3]
        ['final', 'final', 'final']
        """
        return self._records("inferences")

    @checked
    def records(self, unit: Unit = "aicore", columns: Sequence[str] = ()) -> Table:
        """Return the records of layers on the NPU (`aicore`) or the CPU (`aicpu`), as `op_records`, `aicpu_records`.

        There may be millions: name the `columns` that are needed, and iterate over `batches()`. Raises UsageError for a
        column that the view has not, or if `gc` deleted the records.

        >>> import profagent
        >>> records = profagent.open("lab").session().records(columns=["layer_name", "duration_us"])
        >>> sum(len(batch) for batch in records.batches()) == len(records)
        True
        """
        return self._records(_VIEWS[unit], columns)

    def calls(self) -> Table:
        """Return the recorded calls of the runtime's API, as the view `api_records`. Raises as `inferences`.

        >>> import profagent
        >>> profagent.open("lab").session().calls().names[4:8]
        ('name', 'type', 'pid', 'tid')
        """
        return self._records("api_records")

    def ranges(self) -> Table:
        """Return the ranges and steps that programs marked, as the view `ranges`.

        >>> import profagent
        >>> len(profagent.open("lab").session().ranges())
        0
        """
        return self._view("ranges")

    def frames(self) -> Table:
        """Return the frames of programs, in the order of their numbers: latency, age, stages and waits in µs.

        `largest` is the part that took longest, `dropped_before` how many numbers the program left out before the
        frame, `lost_before` how many are not here while marks were lost. `joined_by` is `number`; `spans` or `calls`
        where no mark has a frame's number and these were joined by order.

        >>> import profagent
        >>> profagent.open("lab").session().frames()["joined_by"][:2]
        ['calls', 'calls']
        """
        return Table.of_rows(_FRAMES, wait_for(_frame_rows(self.database, self.number)), self.provenance)

    def metrics(self) -> Table:
        """Return what the board measured of itself, as the view `metrics`; the column `unit` has each value's unit.

        >>> import profagent
        >>> len(profagent.open("lab").session().metrics())
        0
        """
        return self._view("metrics")

    def ledger(self) -> Table:
        """Return each loss and note, as the view `ledger`: which file, which bytes, how often.

        >>> import profagent
        >>> len(profagent.open("lab").session().ledger())
        0
        """
        return self._view("ledger")

    def coverage(self) -> Table:
        """Return how the capture followed the board, as the view `coverage`; an import has no rows.

        >>> import profagent
        >>> len(profagent.open("lab").session().coverage())
        0
        """
        return self._view("coverage")

    @checked
    def sql(self, query: str, **parameters: str | float | None) -> Table:
        """Return the rows of a query over the views, in memory; `:session` in it is the session's number.

        Other `parameters` are named likewise. The views have the rows of all sessions of the workspace. Raises
        UsageError for a query that fails or does more than read; `round` stands for `printf` and `format`, which it may
        not call.

        >>> import profagent
        >>> session = profagent.open("lab").session()
        >>> session.sql("SELECT model, count(*) AS n FROM inferences WHERE session = :session GROUP BY 1").to_dicts()
        [{'model': 'm', 'n': 20}]
        """
        bounds = QueryBounds(LARGEST_VALUE_BYTES)
        return query_table(self.database, query, {"session": self.number, **parameters}, self.provenance, bounds)

    @checked
    def stats(self, by: StatsBy = "layer", *, skip: int | None = None, slo: Sequence[str] = ()) -> Answer:
        """Return where the time goes, as `profagent stats --by BY`.

        `by` is layer, type, model, device, segment, aicpu, api, step or frame. Of each load the first `skip` inferences
        are left out; by default those of its warm-up. `slo` has objectives such as `frame.p99 < 33ms`: the verdict on
        each, how often it is missed, and the guilty part are in `document["slo"]`. Raises UsageError if `skip` goes
        with calls, steps or frames, and for a text that is no objective.

        >>> import profagent
        >>> profagent.open("lab").session().stats(by="model").table["model"]
        ['m']
        >>> answer = profagent.open("lab").session().stats(slo=["latency.p99 < 33ms"])
        >>> [each["verdict"] for each in answer.document["slo"]]
        ['holds']
        """
        objectives = [Objective.parse(each) for each in slo]
        work = stats(self.database, session=self.number, job=self.job, by=by, skip=skip, objectives=objectives)
        return stats_answer(wait_for(work), self.provenance, skip)

    @checked
    def advise(self, *, language: Language = "en", rules: Sequence[Path | str] = ()) -> Answer:
        """Return what to work on, as `profagent advise`: a row for each finding, with its possible gain in µs.

        `rules` are folders of further rules; findings are in English or Chinese (`zh`). Raises UsageError if a rule
        fails, or `gc` deleted the records.

        >>> import profagent
        >>> answer = profagent.open("lab").session().advise()
        >>> sorted(answer.document)
        ['cannot_tell', 'findings', 'jobs', 'nothing_found', 'session', 'simulated']
        """
        # Rules beside a database are read only in a workspace: a JOB directory may come from somebody else.
        chosen = all_rules(self.database, None if self.job else self.number, tuple(map(Path, rules)))
        found = advise(self.database, chosen, session=self.number, job=self.job, language=language)
        document = advice_document(wait_for(found))
        return answer_of(document, table_of(document["findings"], _FINDINGS, self.provenance))

    @checked
    def report(
        self,
        path: Path | str,
        *,
        against: Session | None = None,
        language: Language = "en",
        slo: Sequence[str] = (),
    ) -> Answer:
        """Write one HTML file that opens anywhere, offline, and return its document, as `profagent report`.

        `against` is the base of a comparison; `slo` has objectives, as those of `stats`. The table has the layers of
        the page. Raises ProfagentError if the file cannot be written.

        >>> import profagent
        >>> answer = profagent.open("lab").session().report("report.html")
        >>> answer.table["layer"]
        ['conv2', 'fc', 'conv1', 'not in any layer']
        """
        base = None if against is None else against.operand()
        objectives = [Objective.parse(each) for each in slo]
        work = write_report(self.operand(), Path(path), against=base, language=language, objectives=objectives)
        document = wait_for(work)
        fields = fields_by("layer", document["stats"]["layer"]["unit"])
        return answer_of(document, table_of(document["ranked"], fields, self.provenance))

    def operand(self) -> Operand:
        """Return the session as a side of a comparison."""
        return Operand(str(self.number), self.database, self.number, self.job)

    def _records(self, view: str, columns: Sequence[str] = ()) -> Table:
        wait_for(_require_records(self.database, self.number))
        return self._view(view, columns)

    def _view(self, view: str, columns: Sequence[str] = ()) -> Table:
        return view_table(SessionDatabase(self.database, self._folder), view, self.number, self.provenance, columns)


async def _frame_rows(database: Path, session: int) -> list[tuple[Any, ...]]:
    async with reading(database) as connection:
        found = await frames_of(connection, session)
        return [_frame_row(frame, found.joined_by) async for page in found.pages() for frame in page]


def _frame_row(frame: Frame, joined_by: JoinedBy) -> tuple[Any, ...]:
    times = frame.times()
    (largest, _), largest_us = max(times.items(), key=lambda each: each[1], default=((None, False), None))
    waits_us = sum(us for (_, is_wait), us in times.items() if is_wait)
    return (
        *(frame.process, frame.number, joined_by, frame.begin_ns / 1000, frame.end_ns / 1000),
        *(frame.us, frame.age_us, frame.us - waits_us, waits_us, largest, largest_us, frame.missing, frame.lost),
    )


async def _require_records(database: Path, session: int) -> None:
    async with reading(database) as connection:
        await require_records(connection, session)
