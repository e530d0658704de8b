"""What an acl.json should say for the runtime to record what it was meant to (format page 5)."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Any

from profagent.formats.board_files import load_acl_json
from profagent.formats.sampling import interval_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["METRICS", "PROFILER_KEYS", "as_strings", "corrected_acl_json", "meant_key", "profiler_strings"]

PROFILER_KEYS = ("switch", "output", "interval", "acl_api", "aicpu", "aacpu", "aic_metrics", "aac_metrics")
_SWITCHES = ("switch", "acl_api", "aicpu", "aacpu")
METRICS = "ArithmeticUtilization"
_ALIKE = 0.8


def corrected_acl_json(data: bytes) -> str:
    """The text with which the runtime records; what the file says for others stays, but a dump.

    Where JOBs go is not guessed: of a file without an output the text has none. Raises FormatError for no JSON.
    """
    given = _members(load_acl_json(data, "acl.json"))
    found: dict[str, Any] = {}
    # The exact spelling wins over others.
    for key in sorted((key for key in given if key.casefold() == "profiler"), key=lambda key: key == "profiler"):
        found.update(_members(given[key]))
    told = profiler_strings({meant_key(key) or key: value for key, value in found.items()})
    others = {key: as_strings(value) for key, value in given.items() if key.casefold() not in ("profiler", "dump")}
    text = json.dumps({**others, "profiler": _profiler(told)}, indent=2, ensure_ascii=False) + "\n"
    # Halves of characters, which a file can only name by their numbers.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _members(value: object) -> dict[str, Any]:
    """An object's members, or those of all objects of a list; of anything else none."""
    if isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for each in value if isinstance(value, list) else ():
        found.update(each if isinstance(each, dict) else {})
    return found


def meant_key(key: str) -> str | None:
    """The key of `profiler` that this one is, or is a slip of; None for one that is nothing like any."""
    if key in PROFILER_KEYS:
        return key
    plain = re.sub(r"[^a-z]", "", key.casefold())
    by_plain = {name.replace("_", ""): name for name in PROFILER_KEYS}
    alike = difflib.get_close_matches(plain, by_plain, n=1, cutoff=_ALIKE)
    return by_plain[alike[0]] if alike else None


def _profiler(told: Mapping[str, Any]) -> dict[str, Any]:
    """The object with both spellings of each item: the libraries read one, the manual has the other."""
    aicpu, acl_api = _is_wanted(told, "aicpu", "aacpu"), _is_wanted(told, "acl_api")
    profiler = {
        "switch": "on",
        **({"output": told["output"]} if told.get("output") else {}),
        "interval": _interval(told.get("interval", "")),
        "acl_api": "on" if acl_api else "off",
        "aicpu": "on" if aicpu else "off",
        "aacpu": "on" if aicpu else "off",
        "aic_metrics": METRICS,
        "aac_metrics": METRICS,
    }
    return {**{key: value for key, value in told.items() if key not in PROFILER_KEYS}, **profiler}


def _is_wanted(told: Mapping[str, Any], *spellings: str) -> bool:
    """Both are on unless the file says otherwise, as the manual has it."""
    value: str = next((told[key] for key in spellings if key in told), "on")
    return value.casefold() not in ("off", "false", "0", "no")


def _interval(value: str) -> str:
    interval = interval_of(value) if value else None
    return "1" if interval is None else str(interval)


def profiler_strings(profiler: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `profiler`, each value a string: a truth of a switch is on or off, null says nothing."""
    return {key: _profiler_text(key, value) for key, value in profiler.items() if _says_something(key, value)}


def _says_something(key: str, value: object) -> bool:
    return key not in PROFILER_KEYS or (isinstance(value, str) if key == "output" else value is not None)


def _profiler_text(key: str, value: object) -> Any:
    if key in _SWITCHES and isinstance(value, bool):
        return "on" if value else "off"
    return _text(value) if key in PROFILER_KEYS else as_strings(value)


def as_strings(value: Any) -> Any:
    """The same with every value a string: the runtime reads nothing else."""
    if isinstance(value, dict):
        return {key: as_strings(below) for key, below in value.items()}
    if isinstance(value, list):
        return [as_strings(below) for below in value]
    return _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
