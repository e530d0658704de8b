"""Documents that commands print with `--json`: their names, versions and schemas.

The schemas are generated from the types in `profagent.documents`. The folder `schemas` has every schema that was
published, by name and version: a document that changes gets another version, and the schema of the earlier one stays.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from profagent import documents
from profagent.documents import captures, events, hosts
from profagent.errors import UsageError
from profagent.tables.table import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping


class Document(NamedTuple):
    """Document of a command, or of several commands and groups: its version, its type, and one line on its content."""

    version: int
    type: Any
    command: str
    about: str


DOCUMENTS: Mapping[str, Document] = {
    "failure": Document(
        1, documents.FailureDocument, "every command", "Failure of any command, in place of its answer."
    ),
    "codes": Document(
        1, list[documents.IssueCodeDocument], "explain", "Issue codes: severity, meaning, remedy, exit code."
    ),
    "stats": Document(2, documents.StatsDocument, "stats", "Figures by layer, type, model, function, step or frame."),
    "diff": Document(2, documents.DiffDocument, "diff", "Comparison of two runs, with what may be compared."),
    "ab": Document(1, documents.AbDocument, "ab", "Comparison of two programs that ran side by side in rounds."),
    "trend": Document(
        1, list[captures.TrendDocument], "trend", "Latency of a model, session by session, and changes of level."
    ),
    "advise": Document(1, captures.AdviceDocument, "advise", "What slows a run down, and what it could bring at most."),
    "show": Document(1, list[captures.ShownJobDocument], "show", "The vendor's tables of each JOB."),
    "report": Document(1, captures.ReportDocument, "report", "HTML file of a session, and its verdict."),
    "sessions": Document(1, list[captures.SessionDocument], "sessions", "Sessions of a workspace."),
    "incidents": Document(
        1, list[captures.IncidentDocument], "incidents", "Incidents that a flight recorder found, in order."
    ),
    "baselines": Document(
        1, list[captures.BaselineDocument], "baseline list", "Sessions that others are compared with."
    ),
    "ledger": Document(1, list[captures.LedgerEntryDocument], "ledger", "Losses and notes of a session."),
    "gc": Document(1, captures.ClearedDocument, "gc", "Sessions whose records were deleted, and those that stay."),
    "record": Document(1, captures.RecordDocument, "record", "Capture of one board."),
    "record-boards": Document(1, captures.RecordBoardsDocument, "record", "Captures of several boards."),
    "watch": Document(
        1, events.WatchEvent, "watch", "Event of a board or a session, one a line; `event` tells its kind."
    ),
    "collect": Document(1, captures.CollectDocument, "collect", "Run of a program on a board, and the session of it."),
    "nightly": Document(1, captures.NightDocument, "nightly run", "Results of a night, board by board."),
    "import": Document(1, captures.ImportDocument, "import", "Sources that were imported, and files that were not."),
    "import-job": Document(
        1, captures.ImportedJobDocument, "import", "Import of a JOB directory into its own database."
    ),
    "import-into": Document(1, captures.ImportedIntoDocument, "import", "Import of a JOB directory into a workspace."),
    "redecode": Document(1, captures.RedecodedDocument, "redecode", "Session whose counters were filled anew."),
    "calibrate": Document(1, hosts.CalibrationDocument, "calibrate", "Which word of a record is which counter."),
    "export-trace": Document(1, captures.ExportedTraceDocument, "export", "Trace of sessions that was written."),
    "export-tables": Document(
        1, list[captures.ExportedTablesDocument], "export", "Files of each JOB that were written."
    ),
    "export-session": Document(
        1, list[captures.ExportedSessionDocument], "export", "Sessions that were written as a whole."
    ),
    "push": Document(1, list[captures.PushedDocument], "push", "Sessions that a lake has."),
    "fleet": Document(1, list[dict[str, captures.Cell]], "fleet", "Rows of a question to a lake, by column."),
    "fleet-diff": Document(
        1, captures.FleetDiffDocument, "fleet diff", "Layers that changed between nights of a fleet."
    ),
    "doctor": Document(1, hosts.DoctorDocument, "doctor", "Checks of a host, a board, a JOB or a lake."),
    "aclconfig-get": Document(1, hosts.AclConfigDocument, "aclconfig get", "Profiler settings of an acl.json."),
    "aclconfig-set": Document(
        1, hosts.AclConfigSetDocument, "aclconfig set", "Checks of an acl.json that was written."
    ),
    "aclconfig-check": Document(1, hosts.SectionDocument, "aclconfig check", "Checks of an acl.json."),
    "options-check": Document(1, list[hosts.CheckedOptionsDocument], "options check", "Checks of profiling options."),
    "deploy": Document(1, hosts.DeployedDocument, "deploy", "Board with its daemon, and what was changed there."),
    "deploy-remove": Document(1, hosts.RemovedDocument, "deploy", "Removal of a daemon."),
    "bundle": Document(1, hosts.BundleDocument, "bundle", "Daemon with a Python of its own."),
    "boards": Document(1, list[hosts.BoardDocument], "boards", "Boards that have a name."),
    "keys": Document(1, list[hosts.CertificateDocument], "keys list", "Certificates of the CA."),
    "keys-issue": Document(
        1, hosts.IssuedDocument, "keys issue host, keys issue board", "Certificate that was issued."
    ),
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def print_document(name: str, document: Any) -> None:
    """Print a document of DOCUMENTS as one line of JSON."""
    assert name in DOCUMENTS, name
    click.echo(json_text(document))


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document, generated from its type. Raises UsageError for an unknown name."""
    document = _named(name)
    about = {"$schema": _DIALECT, "$id": f"profagent:{name}:{document.version}", "description": document.about}
    return about | msgspec.json.schema(document.type)


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a schema as it stands in its file."""
    return json.dumps(schema, indent=1) + "\n"


def published(name: str, version: int | None = None) -> str:
    """Return the text of a published schema, by default of the present version. Raises UsageError if there is none."""
    file = resources.files("profagent").joinpath("schemas", file_name(name, version or _named(name).version))
    if not file.is_file():
        raise UsageError(f"there is no version {version} of {name}", hint=f"the newest is {_named(name).version}")
    return file.read_text("utf-8")


def file_name(name: str, version: int) -> str:
    """Return the name of a schema's file."""
    return f"{name}.{version}.json"


def _named(name: str) -> Document:
    if name not in DOCUMENTS:
        raise UsageError(f"there is no document {name!r}", hint="`profagent schema` lists them")
    return DOCUMENTS[name]


@click.command("schema")
@click.argument("name", required=False)
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Print this earlier version.")
def command(*, name: str | None, version: int | None) -> None:
    """Print the JSON Schema of a document that a command prints with --json. Without a name, list the documents.

    A document that changes gets a new version; the schemas of earlier versions stay available.

    Example: profagent schema
    Example: profagent schema stats
    """
    if name is not None:
        click.echo(published(name, version), nl=False)
        return
    for each, document in DOCUMENTS.items():
        click.echo(f"{each:16} {document.version}  {document.about}")
