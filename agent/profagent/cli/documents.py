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
from profagent.errors import UsageError
from profagent.tables.table import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping


class Document(NamedTuple):
    """Document of a command: its version, its type, and one line on its content."""

    version: int
    type: Any
    about: str


DOCUMENTS: Mapping[str, Document] = {
    "failure": Document(1, documents.FailureDocument, "Failure of any command, in place of its answer."),
    "stats": Document(1, documents.StatsDocument, "Figures by layer, type, model, function or step."),
    "diff": Document(1, documents.DiffDocument, "Comparison of two runs, with what may be compared."),
    "ab": Document(1, documents.AbDocument, "Comparison of two programs that ran side by side in rounds."),
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
