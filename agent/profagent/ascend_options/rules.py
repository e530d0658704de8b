"""Rules of options: their possible values, and what their runtimes do with others. The data of `rules.toml`. Pure."""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from profagent.limits import MOST_STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

ALIKE = 0.75
# Fact that there are more options, as in `Profiler(**arguments)`.
MORE = "(more)"
HANDLER = "tensorboard_trace_handler"
CUSTOM_REGISTERS = 8
REGISTERS = range(1, 0x6F)
# Characters that the vendor's page forbids in a path.
_CONTROL = re.compile(r"[\n\f\r\b\t\v\x7f]")
_SIZE = re.compile(r"([0-9]{1,12})\s*(?:MB)?", re.IGNORECASE)
_CUSTOM = "Custom:"


class Expression(NamedTuple):
    """Value that a script computes, and that is therefore unknown."""

    text: str


class Member(NamedTuple):
    """Member of an enumeration, as `ProfilerLevel.Level0`."""

    enum: str
    name: str


class Problem(NamedTuple):
    """Problem with a value, and the value that was probably meant, None if that cannot be inferred."""

    text: str
    instead: object = None


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Option of some families; `rules.toml` explains the fields."""

    name: str
    of: list[str]
    type: str
    text: str
    source: str
    values: list[str] = []
    default: object = None
    also: str = ""
    since: str = ""
    enum: str = ""
    least: int = 0
    most: int | None = None
    wrong: str = ""
    meant: dict[str, str] = {}

    def problem(self, value: object) -> Problem | None:
        """Return the problem with a value, or None for a possible value; expressions are always possible."""
        return None if isinstance(value, Expression) else _CHECKS[self.type](self, value)

    def value(self, plain: Any) -> Any:
        """Return a value of `rules.toml` in the form that scripts have it."""
        if self.type in {"members", "exports"}:
            return [Member(self.enum, name) for name in plain]
        if self.type == "member":
            return Member(self.enum, plain)
        return Expression(plain) if self.type in {"callable", "made"} else plain


class OptionFamily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Place where options stand, with the effects of unknown keys and of wrong values there."""

    title: str
    unknown: str
    wrong: str


class OptionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rule about several options together."""

    check: str
    of: list[str]
    mark: Literal["bad", "unknown"]
    text: str
    source: str
    remedy: str = ""
    given: list[str] = []
    absent: list[str] = []
    with_: list[str] = msgspec.field(name="with", default=[])
    is_: dict[str, list[Any]] = msgspec.field(name="is", default={})
    is_not: dict[str, list[Any]] = {}
    put: dict[str, Any] = {}
    drop: list[str] = []


class OptionRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of `rules.toml`."""

    sources: dict[str, str]
    families: dict[str, OptionFamily]
    keys: list[Key]
    rules: list[OptionRule]

    def keys_of(self, family: str) -> dict[str, Key]:
        """Return the keys of a family by name."""
        return {key.name: key for key in self.keys if family in key.of}

    def rules_of(self, family: str) -> list[OptionRule]:
        """Return the rules of a family in the order of their findings."""
        return [rule for rule in self.rules if family in rule.of]


@lru_cache
def all_rules() -> OptionRules:
    """Return the installed rules."""
    text = resources.files(__package__).joinpath("rules.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), OptionRules)


def nearest(word: str, words: list[str]) -> str | None:
    """Return the word that was probably meant, or None if no word is similar."""
    # People err in capital letters more than in spelling.
    by_plain = {each.casefold(): each for each in words}
    alike = get_close_matches(word.casefold(), by_plain, n=1, cutoff=ALIKE)
    return by_plain[alike[0]] if alike else None


def _choice(key: Key, value: object) -> Problem | None:
    if isinstance(value, str) and value in key.values:
        return None
    wanted = f"must be one of {', '.join(key.values)}"
    truth = {"true": "on", "false": "off"}.get(str(value).casefold(), "")
    if truth in key.values:
        return Problem(wanted, truth)
    return Problem(wanted, nearest(value, key.values) if isinstance(value, str) else None)


def _choices(key: Key, value: object) -> Problem | None:
    words = value.split(",") if isinstance(value, str) else []
    if words and all(word in key.values for word in words):
        return None
    valid = [word.strip() for word in words if word.strip() in key.values]
    return Problem(f"must be a list, with commas, of {', '.join(key.values)}", ",".join(valid) or None)


def _metrics(key: Key, value: object) -> Problem | None:
    if value == "" or not isinstance(value, str) or not value.startswith(_CUSTOM):
        return None if value == "" else _choice(key, value)
    words = value.removeprefix(_CUSTOM).split(",")
    if len(words) <= CUSTOM_REGISTERS and all(_register(word) in REGISTERS for word in words):
        return None
    return Problem(f"must have up to {CUSTOM_REGISTERS} registers, from 0x1 to 0x6e")


def _register(word: str) -> int:
    try:
        return int(word, 16 if word.lower().startswith("0x") else 10)
    except ValueError:
        return -1


def _number(key: Key, value: object) -> Problem | None:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value) else value
    # `bool` is a subclass of int, and no number to a runtime.
    if not isinstance(number, int) or isinstance(number, bool):
        return Problem(f"must be a whole number, from {key.least} to {key.most}")
    within = min(max(number, key.least), number if key.most is None else key.most)
    return None if within == number else Problem(f"must be from {key.least} to {key.most}", within)


def _size(key: Key, value: object) -> Problem | None:
    wanted = f"must be from {key.least}MB to {key.most}MB, with the unit"
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return Problem(wanted)
    right = f"{min(max(int(match[1]), key.least), key.most or 0)}MB"
    return None if right == value else Problem(wanted, right)


def _path(_key: Key, value: object) -> Problem | None:
    if not isinstance(value, str) or not value:
        return Problem("must be a path")
    odd = _CONTROL.search(value)
    if odd is None:
        return None
    return Problem(f"has the character {odd[0]!r}, which a path must not have", _CONTROL.sub("", value))


def _text(_key: Key, value: object) -> Problem | None:
    return None if isinstance(value, str) else Problem("must be a text")


def _bool(_key: Key, value: object) -> Problem | None:
    truths = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    return None if isinstance(value, bool) else Problem("must be True or False", truths.get(str(value).casefold()))


def _int(key: Key, value: object) -> Problem | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= key.least:
        return None
    return Problem(f"must be a whole number, at least {key.least}", key.least)


def _member(key: Key, value: object) -> Problem | None:
    if isinstance(value, Member) and value.enum == key.enum and value.name in key.values:
        return None
    text = value.name if isinstance(value, Member) else str(value)
    word = text.rpartition(".")[2]
    meant = key.meant.get(word.upper()) or nearest(word, key.values)
    return Problem(f"must be {key.enum}.{'|'.join(key.values)}", Member(key.enum, meant) if meant else None)


def _members(key: Key, value: object) -> Problem | None:
    if (
        isinstance(value, list)
        and value
        and all(isinstance(each, Expression) or not _member(key, each) for each in value)
    ):
        return None
    found = value if isinstance(value, (list, tuple)) else [value]
    meant = [each if (slip := _member(key, each)) is None else slip.instead for each in found]
    distinct = [each for place, each in enumerate(meant) if each is not None and each not in meant[:place]]
    return Problem(f"must be a list of {key.enum}.{'|'.join(key.values)}", distinct or None)


def _exports(key: Key, value: object) -> Problem | None:
    # Unlike other lists of members, exports may also be one member alone.
    return _members(key, value if isinstance(value, list) else [value])


def _float(key: Key, value: object) -> Problem | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= key.least:
        return None
    return Problem(f"must be a number, at least {key.least}")


def _steps(_key: Key, value: object) -> Problem | None:
    wanted = "must be a list of whole numbers that follow each other"
    known = isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)
    if not known or not isinstance(value, list) or not value:
        return None if value is None else Problem(wanted)
    first, last = min(value), max(value)
    if last - first >= MOST_STEPS:
        return Problem(wanted)
    consecutive = list(range(first, last + 1))
    return None if value == consecutive else Problem(wanted, consecutive)


def _list(_key: Key, value: object) -> Problem | None:
    return None if isinstance(value, list) else Problem("must be a list")


def _callable(_key: Key, value: object) -> Problem | None:
    is_path = isinstance(value, str) and bool(value)
    return Problem("must be a function", Expression(f"{HANDLER}({value!r})") if is_path else None)


def _made(key: Key, _value: object) -> Problem | None:
    return Problem(f"must be made by {key.enum}(…)")


_CHECKS: dict[str, Callable[[Key, object], Problem | None]] = {
    "choice": _choice,
    "choices": _choices,
    "metrics": _metrics,
    "number": _number,
    "size": _size,
    "path": _path,
    "text": _text,
    "bool": _bool,
    "int": _int,
    "member": _member,
    "members": _members,
    "exports": _exports,
    "float": _float,
    "steps": _steps,
    "list": _list,
    "callable": _callable,
    "made": _made,
}
