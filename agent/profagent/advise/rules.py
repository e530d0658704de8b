"""Rules of `advise`: TOML files, each a query over the views with its thresholds and its words."""

from __future__ import annotations

import re
from importlib import resources
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from profagent.errors import UsageError
from profagent.formats.countermap import RATIOS
from profagent.tables.table import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
# What a session may lack; of a rule that needs it nobody can tell then.
Need = Literal["times", "calls", "metrics", "steps", "ss928", "other"]
# Columns of `layer_means` that come from counters: a rule that reads them needs a counter map.
COUNTERS = (*RATIOS, "bound")
# What `gain_us` is a part of.
Per = Literal["inference", "step"]
SEVERITIES = ("high", "medium", "low", "info")
# What the vendor's tools call the kinds of advice (CANN 8.5).
Kind = Literal[
    "Computation", "Memory", "Operator Schedule", "Operator Processing", "Operator Metrics", "Model Bottleneck Analysis"
]
SUFFIX = ".toml"
# In a workspace, the user's own rules.
RULES_FOLDER = "rules"
PAGE = "docs/howto/advice.md"
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_KEY = re.compile(r"`\$\.(\w+)")
_QUERY = re.compile(r"\s*(SELECT|WITH|VALUES)\b", re.IGNORECASE)


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a finding says in one language: `{name}` is a threshold, a column of its first row, or a sum."""

    title: str
    finding: str
    advice: str


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule. Each row of `sql` is evidence; those of one `model`, and one value of the column `each`, are a finding.

    `gain_us` of a row is what it could bring at most in an inference, or a step (`per`); NULL is 'not known'.
    `counters` names the columns of COUNTERS that `sql` reads; layers that lack one are told as not judged.
    """

    id: str
    severity: Literal["high", "medium", "low", "info"]
    kind: Kind
    manual: str
    needs: list[Need]
    thresholds: dict[str, float]
    sql: str
    en: Words
    zh: Words
    counters: list[str] = []
    each: str = ""
    per: Per = "inference"
    file: str = ""

    def __post_init__(self) -> None:
        """What types do not tell. Raises ValueError."""
        if not _ID.fullmatch(self.id):
            raise ValueError("id: write small letters, digits and single hyphens")
        if not _QUERY.match(self.sql):
            raise ValueError("sql: a query begins with SELECT or WITH")
        if unknown := [name for name in self.counters if name not in COUNTERS]:
            raise ValueError(f"counters: {unknown[0]!r} is none; write {' or '.join(map(repr, COUNTERS))}")

    @property
    def all_needs(self) -> list[str]:
        """What the session must have: `needs`, and "counters" if the rule reads some."""
        return [*self.needs, *(["counters"] if self.counters else [])]

    def words(self, language: Language) -> Words:
        """Its words in a language."""
        return self.en if language == "en" else self.zh

    def said(self, template: str, values: Mapping[str, Any]) -> str:
        """A text with its values. UsageError names a word that there is no value for."""
        try:
            return _Words().vformat(template, (), values)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise self.wrong(f"a text: {{{error}}} cannot be filled in; there are {', '.join(values)}") from error

    def wrong(self, found: str) -> UsageError:
        """The error that names its file."""
        return _wrong(self.file, found)


# msgspec looks at a type when it is first used, and dies where two threads do so at once: it is done here.
msgspec.toml.decode("", type=dict[str, Any])


class _Words(Formatter):
    """Fills in plain names; what is not known is N/A whatever form it was to have."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """A value by its name alone: no attribute, no item."""
        if not field_name.isidentifier():
            raise ValueError(field_name)
        return self.get_value(field_name, args, kwargs), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        """The value in its form."""
        return UNKNOWN if value is None else str(super().format_field(value, format_spec))


def own_rules() -> list[Rule]:
    """The rules that come with profagent, by their names."""
    return list(_read(resources.files("profagent.advise").joinpath("rules").iterdir()))


def rules_with(folders: Iterable[Path]) -> list[Rule]:
    """Our rules and those of folders; a later rule takes the place of an earlier one of its id.

    Raises UsageError where there is no such folder, or where a rule is bad: it names the file and the key.
    """
    found = {rule.id: rule for rule in own_rules()}
    for folder in folders:
        try:
            files = sorted(folder.iterdir())
        except OSError as error:
            hint = f"name a folder of *.toml files: {PAGE}"
            raise UsageError(f"cannot read the rules in {folder}: {error.strerror}", hint=hint) from error
        found.update({rule.id: rule for rule in _read(files)})
    return list(found.values())


def all_rules(database: Path, session: int | None, named: tuple[Path, ...] = ()) -> list[Rule]:
    """Our rules, the workspace's, and those of folders that the user names.

    Without a session the database is in a JOB, which may be somebody else's: no rule is read there.
    """
    own = database.parent / RULES_FOLDER
    return rules_with([*([own] if session is not None and own.is_dir() else []), *named])


def _read(files: Iterable[Traversable]) -> Iterator[Rule]:
    for file in sorted(files, key=lambda each: each.name):
        if file.name.endswith(SUFFIX):
            yield _rule(file)


def _rule(file: Traversable) -> Rule:
    try:
        table = msgspec.toml.decode(file.read_bytes(), type=dict[str, Any])
        return msgspec.convert({**table, "file": str(file)}, Rule)
    except OSError as error:
        raise UsageError(f"cannot read the rule {file}: {error.strerror}", hint="check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise _wrong(file, str(error)[:200] + _allowed(str(error))) from error


def _allowed(error: str) -> str:
    """The values of the key that an error is about, where it takes only some."""
    key = _KEY.search(error)
    about = msgspec.json.schema(Rule)["$defs"]["Rule"]["properties"].get(key[1], {}) if key else {}
    values = about.get("enum") or about.get("items", {}).get("enum")
    return f"; write {' or '.join(map(repr, values))}" if values else ""


def _wrong(file: object, found: str) -> UsageError:
    return UsageError(f"the rule {file}: {found}", hint=f"correct it: {PAGE} has its keys")
