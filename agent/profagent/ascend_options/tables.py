"""Arguments of torch_npu's profiler in JSON and TOML, in any of their tables. Pure."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import tomlkit

from profagent.ascend_options.checking import key_of
from profagent.ascend_options.rules import Expression, Member, all_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.ascend_options.rules import Key

EXPERIMENTAL, SCHEDULE = "experimental_config", "schedule"
# Family of a table by the key under which it stands.
INNER = {EXPERIMENTAL: "torch_experimental", SCHEDULE: "torch_schedule"}
_OUTER = ("torch_profile", "torch_experimental", "torch_dynamic", "torch_schedule")
# Names in these families that are common in other tables, too, and decide nothing.
_COMMON = frozenset({"schedule", "analyse", "active", "metadata"})
# Enumerations whose members torch_npu accepts in lower case, too.
_ANY_CASE = frozenset({"ProfilerActivity", "ExportType"})


class OptionTable(NamedTuple):
    """Table of options: the keys that lead to it, its family, and its entries."""

    path: tuple[str, ...]
    family: str
    given: dict[str, object]


def tables(value: object, path: tuple[str, ...] = (), family: str = "") -> Iterator[OptionTable]:
    """Yield the tables with torch_npu's arguments in a document, an outer table before those in it."""
    if isinstance(value, list):
        for place, each in enumerate(value):
            yield from tables(each, (*path, str(place)))
    if not isinstance(value, dict):
        return
    # Below a known table, the key decides the family; elsewhere the names in the table do.
    family = family or _family(value)
    if family:
        yield OptionTable(path, family, {name: each for name, each in value.items() if each is not None})
    for name, each in value.items():
        yield from tables(each, (*path, name), INNER.get(name, "") if family and isinstance(each, dict) else "")


def _family(value: Mapping[str, object]) -> str:
    """Return the family that most keys belong to; empty if more of them belong to another runtime's options."""
    words, others = _words()
    counts = {family: len(value.keys() & words[family]) for family in _OUTER}
    most = max(_OUTER, key=counts.__getitem__)
    return most if counts[most] > len(value.keys() & others) else ""


@lru_cache
def _words() -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    rules = all_rules()
    others = {name for family in ("profiling_options", "acl_json") for name in rules.keys_of(family)}
    own = {
        family: {name for key in rules.keys_of(family).values() for name in (key.name, key.also) if name}
        for family in _OUTER
    }
    words = {family: frozenset(names - others - _COMMON) for family, names in own.items()}
    return words, frozenset(others - set().union(*own.values()))


def typed(keys: Mapping[str, Key], given: Mapping[str, object]) -> dict[str, object]:
    """Return the entries of a table as a script has them: members of enumerations, and functions as expressions."""
    return {name: _typed(key_of(keys, name), value) for name, value in given.items()}


def _typed(key: Key | None, value: object) -> object:
    if isinstance(value, dict) or (key is not None and key.type in {"made", "callable"} and isinstance(value, str)):
        return Expression("…")
    if key is None or not key.enum:
        return value
    if isinstance(value, list):
        return [_typed(key, each) for each in value]
    if not isinstance(value, str):
        return value
    alike = [name for name in key.values if key.enum in _ANY_CASE and name.casefold() == value.casefold()]
    return Member(key.enum, alike[0] if alike else value)


def plain(value: object) -> object:
    """Return a value as JSON and TOML have it."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.name if isinstance(value, Member) else value


def toml_text(table: Mapping[str, object]) -> str:
    """Return a table in TOML, with inner tables after its own keys."""
    return tomlkit.dumps(table).strip()


def read_toml(text: str) -> dict[str, object] | str:
    """Return the tables of a text, or the reason why it is no TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
