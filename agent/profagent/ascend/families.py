"""What file families there are, and which of their columns mean what: the data of families.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Kind = Literal["summary", "timeline", "report", "table"]
# An integer that stands for "no model": its operators were called one by one.
NO_MODEL = "4294967295"
NOT_KNOWN = frozenset({"", "N/A", NO_MODEL, "None", "NULL"})


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of file, or of table in a database."""

    name: str
    kind: Kind
    about: str
    needs: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    into: str = ""
    sample: bool = False


class Families(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of the file."""

    columns: dict[str, tuple[str, ...]]
    places: dict[str, str]
    steps: dict[str, tuple[str, ...]]
    family: tuple[Family, ...]

    def of_header(self, header: Collection[str]) -> Family | None:
        """The summary with such columns; None where it is not known."""
        there = {*header, *map(with_unit, header)}
        for family in self.family:
            if family.kind == "summary" and all(there & {*need.split("|")} for need in family.needs):
                return family
        return None

    def of_events(self, processes: Collection[str], categories: Collection[str], name: str) -> Family | None:
        """The timeline with events of such processes and categories; `name` is its file's, where these do not tell."""
        there = set(processes)
        timelines = [family for family in self.family if family.kind == "timeline"]
        for family in timelines:
            if any({*each.split("+")} <= there for each in family.processes) or set(family.categories) & set(
                categories
            ):
                return family
        return next((family for family in timelines if name.startswith((*family.names, family.name))), None)

    def of_report(self, text: bytes) -> Family | None:
        """The report with such words."""
        reports = (family for family in self.family if family.kind == "report")
        return next((each for each in reports if all(f'"{key}"'.encode() in text for key in each.keys)), None)


@cache
def families() -> Families:
    """What families.toml says."""
    text = resources.files("profagent.ascend").joinpath("families.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Families)


def with_unit(name: str) -> str:
    """The name of a column with its unit: older tools leave that of times away, which are in µs then."""
    return name if name.endswith(")") else f"{name}(us)"


def places(header: Sequence[str], meanings: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Where each meaning stands in a header: the first of its names that is there."""
    backwards = [*enumerate(header)][::-1]
    at = {with_unit(column): place for place, column in backwards} | {column: place for place, column in backwards}
    return {
        meaning: next(at[name] for name in names if name in at)
        for meaning, names in meanings.items()
        if any(name in at for name in names)
    }
