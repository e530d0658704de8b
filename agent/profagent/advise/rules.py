"""Rules of `advise`: TOML files, each with a query over the views, its thresholds and its words."""

from __future__ import annotations

import re
from importlib import resources
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from profagent.codes import IssueCode, IssueFamily, Severity
from profagent.errors import UsageError
from profagent.formats.countermap import RATIOS
from profagent.tables.table import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
# Data that a session may lack: a rule that needs it cannot be judged then.
Need = Literal["times", "calls", "metrics", "steps", "ss928", "other"]
# Columns of `layer_means` that come from counters: a rule that reads them needs a counter map.
COUNTERS = (*RATIOS, "bound")
# The time that `gain_us` is a part of.
Per = Literal["inference", "step"]
SEVERITIES = ("high", "medium", "low", "info")
# The kinds of advice, as the vendor's tools name them (CANN 8.5).
Kind = Literal[
    "Computation", "Memory", "Operator Schedule", "Operator Processing", "Operator Metrics", "Model Bottleneck Analysis"
]
SUFFIX = ".toml"
# The folder of the user's own rules in a workspace.
RULES_FOLDER = "rules"
PAGE = "docs/howto/advice.md"
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_KEY = re.compile(r"`\$\.(\w+)")
_PLACEHOLDER = re.compile(r"\{\w+[^}]*\}")
_QUERY = re.compile(r"\s*(SELECT|WITH|VALUES)\b", re.IGNORECASE)


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of a finding in one language: `{name}` is a threshold, a column of its first row, or a sum."""

    title: str
    finding: str
    advice: str


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule; each row of `sql` is evidence, and the rows of one `model` and one value of `each` are a finding.

    `gain_us` of a row is the most that it could save in an inference, or a step (`per`); NULL is 'not known'.
    `counters` names the columns of COUNTERS that `sql` reads; layers that lack one are reported as not judged.
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
        """Check what types cannot express; raise ValueError."""
        if not _ID.fullmatch(self.id):
            raise ValueError("id: write small letters, digits and single hyphens")
        if not _QUERY.match(self.sql):
            raise ValueError("sql: a query begins with SELECT or WITH")
        if unknown := [name for name in self.counters if name not in COUNTERS]:
            raise ValueError(f"counters: {unknown[0]!r} is none; write {' or '.join(map(repr, COUNTERS))}")

    @property
    def issue(self) -> IssueCode:
        """The rule as an issue code; … stands for what a finding fills in."""
        text, remedy = (_PLACEHOLDER.sub("…", each) for each in (self.en.title, self.en.advice))
        text = text.removesuffix(": … layer…")
        return IssueCode(IssueFamily.ADVICE, self.id, Severity(self.severity), text, remedy)

    @property
    def all_needs(self) -> list[str]:
        """The data that the session must have: `needs`, and "counters" if the rule reads any."""
        return [*self.needs, *(["counters"] if self.counters else [])]

    def words(self, language: Language) -> Words:
        """Return the words in a language."""
        return self.en if language == "en" else self.zh

    def said(self, template: str, values: Mapping[str, Any]) -> str:
        """Return a template filled with values; raise UsageError that names a placeholder without a value."""
        try:
            return _PlainFormatter().vformat(template, (), values)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise self.wrong(f"a text: {{{error}}} cannot be filled in; there are {', '.join(values)}") from error

    def wrong(self, found: str) -> UsageError:
        """Return the error that names the rule's file."""
        return _wrong(self.file, found)


# msgspec inspects a type at its first use, and crashes if two threads do so at once: the import does it first.
msgspec.toml.decode("", type=dict[str, Any])


class _PlainFormatter(Formatter):
    """A formatter of plain names; an unknown value is N/A whatever its format."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """Return a value by its name only: templates are the user's, so no attribute or item is read."""
        if not field_name.isidentifier():
            raise ValueError(field_name)
        return self.get_value(field_name, args, kwargs), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return the value in its format."""
        return UNKNOWN if value is None else str(super().format_field(value, format_spec))


def own_rules() -> list[Rule]:
    """Return the rules that come with profagent, by their names."""
    return list(_read(resources.files("profagent.advise").joinpath("rules").iterdir()))


def rules_with(folders: Iterable[Path]) -> list[Rule]:
    """Return the rules of profagent and of folders; a later rule replaces an earlier one of its id.

    Raises UsageError if there is no such folder, or a rule is bad, with the file and the key.
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
    """Return the rules of profagent, of the workspace, and of folders that the user names.

    Without a session the database lies in a JOB, which may come from somebody else: no rule is read there.
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
    key = _KEY.search(error)
    about = msgspec.json.schema(Rule)["$defs"]["Rule"]["properties"].get(key[1], {}) if key else {}
    values = about.get("enum") or about.get("items", {}).get("enum")
    return f"; write {' or '.join(map(repr, values))}" if values else ""


def _wrong(file: object, found: str) -> UsageError:
    return UsageError(f"the rule {file}: {found}", hint=f"correct it: {PAGE} has its keys")
