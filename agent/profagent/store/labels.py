"""Labels of sessions, `key=value`: reading those that are given, and choosing sessions by them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Condition", "condition_of", "fits", "labels_of"]

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LONGEST_VALUE = 256
FORMS = "label=KEY, label=KEY=VALUE, board=NAME, sdk=VERSION, frequency=MHZ or source=record|watch|import|collect"


class Condition(NamedTuple):
    """What a session is to have: a `label` of a key (and value, unless None), or another field of a value."""

    field: str
    key: str
    value: str | None


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """Labels from `key=value`, of a key the last; UsageError for what is none."""
    return dict(_label(text) for text in texts)


def condition_of(text: str) -> Condition:
    """A condition in one of FORMS; UsageError for what is none."""
    field, _, rest = text.partition("=")
    if field == "label" and _KEY.fullmatch(rest.partition("=")[0]):
        key, separator, value = rest.partition("=")
        return Condition(field, key, value if separator else None)
    if field in ("board", "source", "sdk", "frequency") and rest:
        return Condition(field, field, rest)
    raise UsageError(f"{text!r} is no condition on sessions", hint=f"write {FORMS}")


def fits(session: Mapping[str, Any], conditions: Iterable[Condition]) -> bool:
    """Whether a session, as `all_sessions` gives it, fits all of them; a board is its identity or its host's name."""
    return all(_fits(session, condition) for condition in conditions)


def _fits(session: Mapping[str, Any], condition: Condition) -> bool:
    match condition.field:
        case "label":
            labels = session["labels_by_key"]
            return condition.key in labels and condition.value in (None, labels[condition.key])
        case "board":
            return condition.value in (session["board"], session["hostname"])
        case "sdk":
            return bool(session["sdk_version"] == condition.value)
        case "frequency":
            return condition.value in [str(mhz) for mhz in session["frequencies_mhz"]]
    return bool(session[condition.field] == condition.value)


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not _KEY.fullmatch(key) or not value.isprintable() or len(value) > LONGEST_VALUE:
        raise UsageError(
            f"{text!r} is no label",
            hint="write it as KEY=VALUE; a key is 1 to 64 of A-Z a-z 0-9 . _ -,"
            f" a value up to {LONGEST_VALUE} printable characters",
        )
    return key, value
