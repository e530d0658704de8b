"""The formats of `profagent export NAME`. A new one is a module with its writer, and an entry of FORMATS.

Commands, their help, closing lines, the settings of `profagent nightly` and the documentation read this table.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from profagent.limits import LARGEST_PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MB = 1_000_000


class FormatScope(Enum):
    """Data that one call of a writer gets; the options of the command follow from it. Writers are of three kinds.

    A writer of TRACE is a class like `export.merged.Writer`, called with the file, the tracks and the metadata. It
    gets the events of all sources of several sessions, on one clock, as blocks (`export.blocks`).

    A writer of TABLES is an async function like `export.summary.export_summary`, called with the database, the
    folder, and by name the session, JOB and choice of inferences. It writes files for each JOB of one session.

    A writer of SESSION is an async function like `export.sqlite_file.export_sqlite`, called with the database, the
    file or folder, and the session. It writes everything that one session has, and returns a `Written`.
    """

    TRACE = "trace"
    TABLES = "tables"
    SESSION = "session"


class Written(NamedTuple):
    """File or folder that a session was written to; `rows` are counts by table, where the format counts them.

    `also` are the other sessions that were written with it because they share a JOB.
    """

    place: Path
    metadata: dict[str, Any]
    rows: Mapping[str, int] | None = None
    also: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """Format of an export: its writer as `module:name`, imported when it is needed, and the texts of its command.

    `place` is the default file below the folder of results, or the folder where it ends with a slash. `about` is
    the help; its first sentence also stands in lists. `opens_in` names programs that read the result. The value of
    each of `options` is passed to the writer under the option's name.
    """

    scope: FormatScope
    writer: str
    place: str
    about: str
    opens_in: str
    options: tuple[click.Option, ...] = ()

    @property
    def is_folder(self) -> bool:
        """True if the result is a folder, and not one file."""
        return self.place.endswith("/")

    @property
    def folder(self) -> str:
        """First folder of `place`, below the folder of results."""
        return PurePosixPath(self.place).parts[0]

    @property
    def file_name(self) -> str:
        """Name of the default file, without folders."""
        return PurePosixPath(self.place).name

    def load(self) -> Any:
        """Import and return the writer."""
        return pkgutil.resolve_name(self.writer)


# The order is that of the commands in the help and on the pages.
FORMATS: dict[str, Format] = {
    "timeline": Format(
        FormatScope.TABLES,
        "profagent.export.timeline:export_timeline",
        "timeline/",
        "Write task_time and acl timelines.",
        "chrome://tracing and ui.perfetto.dev",
    ),
    "summary": Format(
        FormatScope.TABLES,
        "profagent.export.summary:export_summary",
        "summary/",
        "Write op_summary, op_statistic and acl_statistic tables.",
        "any spreadsheet",
        (
            click.Option(
                ["--format", "sheet_format"], type=click.Choice(["csv", "json"]), default="csv", show_default=True
            ),
            click.Option(
                ["--aggregate"],
                is_flag=True,
                help="Write one table over all inferences of a model instead of one for each.",
            ),
        ),
    ),
    "trace": Format(
        FormatScope.TRACE,
        "profagent.export.json_trace:JsonTrace",
        "trace/trace.json",
        "Write one trace of all that sessions have.\n\n"
        "Inferences with segments and layers, API calls, ranges and marks, subscribed ops, metrics and PMU ratios,"
        " losses. Several boards come on the host's clock; the metadata tell how sure that is.",
        "ui.perfetto.dev or chrome://tracing",
        (
            click.Option(
                ["--part-size", "largest_bytes"],
                type=click.IntRange(min=1),
                default=LARGEST_PART_BYTES // MB,
                show_default=True,
                metavar="MB",
                callback=lambda _context, _option, megabytes: megabytes * MB,
                help="Cut a larger trace into files of this size.",
            ),
        ),
    ),
    "perfetto": Format(
        FormatScope.TRACE,
        "profagent.export.perfetto:PerfettoTrace",
        "trace/trace.pftrace",
        "Write the same trace in Perfetto's own format: one file, less than half the size.",
        "ui.perfetto.dev",
    ),
    "speedscope": Format(
        FormatScope.TRACE,
        "profagent.export.speedscope:SpeedscopeFile",
        "trace/trace.speedscope.json",
        "Write the slices as profiles for speedscope.",
        "www.speedscope.app",
    ),
    "parquet": Format(
        FormatScope.SESSION,
        "profagent.export.parquet:export_parquet",
        "parquet/",
        "Write the views as Parquet, by board and day.\n\n"
        "Several sessions may share a folder. Needs pyarrow; without it the error tells the command that installs it.",
        "DuckDB, polars and pandas",
    ),
    "sqlite": Format(
        FormatScope.SESSION,
        "profagent.export.sqlite_file:export_sqlite",
        "sqlite/profagent.db",
        "Write one session as a database of its own.\n\n"
        "A folder with such a profagent.db is a workspace to read from: profagent stats 3 --workspace DIR",
        "sqlite3 and profagent itself",
    ),
}
