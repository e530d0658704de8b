"""The `profiler` object of an acl.json, as it is to be for a run; the rest of the file stays (format page 5)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profagent.doctor.acl_json import METRICS, PROFILER_KEYS
from profagent.errors import FormatError, UsageError
from profagent.formats.board_files import load_acl_json

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULTS", "Profiler", "edited_acl_json", "profiler_of"]

PROFILER, DUMP = "profiler", "dump"
_HINT = "mend the file: `profagent aclconfig check` says what the runtime takes"
_SWITCHES = ("switch", "acl_api", "aicpu", "aacpu")


@dataclass(frozen=True, slots=True)
class Profiler:
    """Values that are asked for, by the vendor's names; None: as the file has them, else the vendor's default."""

    switch: str | None = None
    output: str | None = None
    interval: int | None = None
    acl_api: str | None = None
    aacpu: str | None = None
    aac_metrics: str | None = None

    @property
    def records(self) -> bool:
        """Whether a program that reads them all records anything."""
        return self.switch == "on" and (self.acl_api == "on" or self.aacpu == "on" or self.aac_metrics == METRICS)


# The manual's defaults, 'collecting by acl.json', table 1.
DEFAULTS = Profiler("on", None, 0, "on", "on", METRICS)


def edited_acl_json(data: bytes, asked: Profiler, file: str, *, without_dump: bool = False) -> str:
    """The text of the file with these values, as strings, in both spellings; other keys stay, but for a `dump`.

    Empty data is a file that there is not. Raises FormatError, and UsageError where no `output` is known.
    """
    document = _document(data, file) if data else {}
    found = document.get(PROFILER)
    told = _profiler_strings(found) if isinstance(found, dict) else {}
    kept = {key: _as_strings(value) for key, value in document.items() if not (without_dump and key == DUMP)}
    text = json.dumps({**kept, PROFILER: {**told, **_values(told, asked, file)}}, indent=2, ensure_ascii=False) + "\n"
    # Halves of characters, which a file can only name by their numbers.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def profiler_of(data: bytes, file: str) -> dict[str, object] | None:
    """The object as the file has it; None where there is none. Raises FormatError."""
    found = _document(data, file).get(PROFILER)
    return found if isinstance(found, dict) else None


def has_dump(data: bytes) -> bool:
    """Whether the file speaks of a Dump, which the manual forbids beside profiling."""
    try:
        return bool(_document(data, "").get(DUMP))
    except FormatError:
        return False


def _document(data: bytes, file: str) -> dict[str, object]:
    try:
        document = load_acl_json(data, file)
    except FormatError as error:
        raise FormatError(file, error.offset, error.expected, error.found, hint=_HINT) from error
    if not isinstance(document, dict):
        raise FormatError(file, 0, "an object", type(document).__name__, hint=_HINT)
    return document


def _values(told: Mapping[str, str], asked: Profiler, file: str) -> dict[str, str]:
    """Both spellings: the libraries read one, the manual has the other."""
    output = asked.output or told.get("output")
    if not output:
        raise UsageError(f"{file} names no output, and a program would crash", hint="name a directory with --output")
    aicpu = _chosen(asked.aacpu, DEFAULTS.aacpu, told, "aicpu", "aacpu")
    metrics = _chosen(asked.aac_metrics, DEFAULTS.aac_metrics, told, "aic_metrics", "aac_metrics")
    return {
        "switch": _chosen(asked.switch, DEFAULTS.switch, told, "switch"),
        "output": output,
        "interval": _chosen(asked.interval, DEFAULTS.interval, told, "interval"),
        "acl_api": _chosen(asked.acl_api, DEFAULTS.acl_api, told, "acl_api"),
        "aicpu": aicpu,
        "aacpu": aicpu,
        "aic_metrics": metrics,
        "aac_metrics": metrics,
    }


def _chosen(asked: str | int | None, default: str | int | None, told: Mapping[str, str], *spellings: str) -> str:
    """What was asked for, else what the file says, else the default."""
    found = next((told[key] for key in spellings if key in told), default)
    return str(found if asked is None else asked)


def _profiler_strings(profiler: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `profiler`, each value a string: a truth of a switch is on or off, null says nothing."""
    told = {}
    for key, value in profiler.items():
        if key in _SWITCHES and isinstance(value, bool):
            told[key] = "on" if value else "off"
        elif key not in PROFILER_KEYS:
            told[key] = _as_strings(value)
        elif isinstance(value, str) or (key != "output" and value is not None):
            told[key] = _text(value)
    return told


def _as_strings(value: Any) -> Any:
    """The same with every value a string: the runtime reads nothing else."""
    if isinstance(value, dict):
        return {key: _as_strings(below) for key, below in value.items()}
    return [_as_strings(below) for below in value] if isinstance(value, list) else _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
