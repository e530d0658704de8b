"""Answers of the Python API: what the commands print with `--json`, with the rows as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from profagent.api.arguments import checked
from profagent.api.provenance import Provenance
from profagent.api.table import Table
from profagent.api.waiting import wait_for
from profagent.diff.comparing import Floor
from profagent.diff.diff import diff as compare
from profagent.diff.diff import parse_condition
from profagent.diff.report import diff_document
from profagent.stats.document import ANSWERS, cells_of, columns_of, stats_document
from profagent.tables.arrow import Field
from profagent.tables.comparability import allowed_codes
from profagent.tables.table import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.api.session import Session  # noqa: TC004 - imports this module; `checked` finds it by its name
    from profagent.stats.session_figures import StatsBy, Unit
    from profagent.stats.stats import Stats
    from profagent.tables.arrow import Kind


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a question: its `table` and `provenance`, and the `text` that the command prints with `--json`.

    Where a comparison came before, `verdict` says its result in a line; else it is empty.

    >>> import profagent
    >>> answer = profagent.open("lab").session().stats(by="model")
    >>> answer.document["by"], answer.table["count"]
    ('model', [20])
    """

    table: Table
    provenance: Provenance
    text: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The document of `--json`, made anew for each call; `profagent schema` explains its keys."""
        found: dict[str, Any] = msgspec.json.decode(self.text)
        return found

    @property
    def verdict(self) -> str:
        """The result in a line, of a comparison or a report; empty for other answers."""
        return str(self.document.get("verdict", ""))


def answer_of(document: Mapping[str, Any], table: Table) -> Answer:
    """Return an answer with the document of a command."""
    return Answer(table, table.provenance, json_text(document))


def stats_answer(found: Stats, provenance: Provenance, skip: int | None) -> Answer:
    """Return the answer of `stats`, with a row for each of its groups, largest first."""
    cells = [cells_of(found, row) for row in found.rows]
    fields = fields_by(found.by, found.unit)
    return answer_of(stats_document(found, found.rows, skip), Table.of_rows(fields, cells, provenance))


def fields_by(by: StatsBy, unit_of_answer: Unit) -> list[Field]:
    """Return the columns of `stats` by `by`."""
    units = {name: unit_of_answer if unit == ANSWERS else unit for name, unit in columns_of(by).items()}
    return [Field(name, _kind_of(name, unit), unit) for name, unit in units.items()]


# Columns of whole numbers.
_COUNTS = frozenset({"count", "recorded", "of_layers"})


def _kind_of(name: str, unit: str) -> Kind:
    if unit:
        return "float64"
    return "int64" if name in _COUNTS else "text"


def table_of(rows: Sequence[Mapping[str, Any]], fields: Sequence[Field], provenance: Provenance) -> Table:
    """Return rows of a document as a table with these columns."""
    return Table.of_rows(fields, [[row[field.name] for field in fields] for row in rows], provenance)


@checked
def diff(
    base: Session,
    new: Session,
    *,
    fail_if: Sequence[str] = (),
    floor: tuple[float, float] = (1.0, 0.1),
    skip: int | None = None,
    allow: Sequence[str] = (),
) -> Answer:
    """Return what is slower or faster in a session than in another, beyond the noise of both.

    A change below the `floor`, in percent of the base and in µs, counts as none. `fail_if` has conditions such as
    `layer.median>+5%`, whose outcomes are in the document. Of each load the first `skip` inferences are left out; by
    default those of its warm-up. What must not be compared has no difference, unless `allow` has the code of the rule
    that forbids it; `document["comparability"]` says which rules do. The table has a row for each latency, sum of
    layers and layer: medians in µs.

    Raises UsageError if no model is in both sessions, for a condition or a code that is none, and StoreError.

    >>> import profagent
    >>> workspace = profagent.open("lab")
    >>> answer = profagent.diff(workspace.session(1), workspace.session(2))
    >>> [row["name"] for row in answer.table.to_dicts() if row["significant"]]
    ['m', 'conv2']
    """
    found = wait_for(
        compare(
            base.operand(),
            new.operand(),
            [parse_condition(text) for text in fail_if],
            Floor(*floor),
            skip,
            allowed_codes(allow),
        )
    )
    provenance = Provenance.joined([base.provenance, new.provenance])
    document = diff_document(found)
    rows = [row for model in document["models"] for row in _change_rows(model)]
    return answer_of(document, Table.of_rows(_CHANGES, rows, provenance))


_CHANGES = (
    *(Field(name, "text") for name in ("model", "scope", "name")),
    *(Field(name, "float64", "us") for name in ("base", "new", "difference")),
    Field("percent", "float64", "%"),
    Field("p", "float64"),
    Field("significant", "int64"),
)


def _change_rows(model: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the changes of a model that its document shows."""
    changes = [model["latency"], model["sum_of_layers"], *(each["change"] for each in model["layers"])]
    return [
        (
            *(model["model"], change["scope"], change["name"]),
            *(change["base"]["median"], change["new"]["median"]),
            *(change[name] for name in ("difference", "percent", "p", "significant")),
        )
        for change in changes
        if change is not None
    ]
