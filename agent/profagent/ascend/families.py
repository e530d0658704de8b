"""File families and the meanings of their columns: the data of families.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Kind = Literal["summary", "timeline", "report", "table"]
# Integer that stands for "no model": the operators were called one by one.
NO_MODEL = "4294967295"
NOT_KNOWN = frozenset({"", "N/A", NO_MODEL, "None", "NULL"})


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kind of file, or kind of table in a database."""

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
    """Contents of families.toml."""

    columns: dict[str, tuple[str, ...]]
    places: dict[str, str]
    steps: dict[str, tuple[str, ...]]
    family: tuple[Family, ...]

    def of_header(self, header: Collection[str]) -> Family | None:
        """Return the summary family with such columns, or None if it is unknown."""
        there = {*header, *map(with_unit, header)}
        for family in self.family:
            if family.kind == "summary" and all(there & {*need.split("|")} for need in family.needs):
                return family
        return None

    def of_events(self, processes: Collection[str], categories: Collection[str], name: str) -> Family | None:
        """Return the timeline family with events of such processes or categories, else the one of the file's name."""
        there = set(processes)
        timelines = [family for family in self.family if family.kind == "timeline"]
        for family in timelines:
            if any({*each.split("+")} <= there for each in family.processes) or set(family.categories) & set(
                categories
            ):
                return family
        return next((family for family in timelines if name.startswith((*family.names, family.name))), None)

    def of_report(self, text: bytes) -> Family | None:
        """Return the report family whose keys stand in the text, or None if it is unknown."""
        reports = (family for family in self.family if family.kind == "report")
        return next((each for each in reports if all(f'"{key}"'.encode() in text for key in each.keys)), None)


@cache
def families() -> Families:
    """Return the contents of families.toml."""
    text = resources.files("profagent.ascend").joinpath("families.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Families)


def with_unit(name: str) -> str:
    """Return the name of a column with its unit: older tools omit `(us)` in the names of times."""
    return name if name.endswith(")") else f"{name}(us)"


def places(header: Sequence[str], meanings: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the index in a header of each meaning: that of the first of its names that the header has."""
    # Later entries of a dict replace earlier ones, so the first column of several with one name wins.
    backwards = [*enumerate(header)][::-1]
    at = {with_unit(column): place for place, column in backwards} | {column: place for place, column in backwards}
    return {
        meaning: next(at[name] for name in names if name in at)
        for meaning, names in meanings.items()
        if any(name in at for name in names)
    }
