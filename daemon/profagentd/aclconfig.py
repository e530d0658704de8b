"""What the program of a JOB was told to record: the `profiler` object of its acl.json (format page 5). Pure."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

OUTPUT, SWITCH = "output", "switch"
_AIC_METRICS = ("aic_metrics", "aac_metrics")
_AICPU = ("aicpu", "aacpu")
# The runtime takes a comma before a closing bracket; a string is passed over whole.
_STRING_OR_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
# JSON can write them, but no path has a NUL and no text half a character.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


class NotUsable(Exception):  # noqa: N818 - what a file of somebody else's is, no fault
    """The runtime could not have begun a JOB with this file; the text says why."""


@dataclass(frozen=True)
class AclConfig:
    """The texts of a `profiler` object that is switched on; empty where a key is not there."""

    output: str
    interval: str = ""
    aicpu: str = ""
    acl_api: str = ""
    aic_metrics: str = ""

    def leads_to(self, directory: bytes, starts: list[bytes]) -> bool:
        """Whether `output` is the directory that holds a JOB.

        A relative one begins where the program was started, which no file tells: any of `starts` will do.
        """
        output = os.fsencode(self.output)
        return any(os.path.realpath(os.path.join(start, output)) == directory for start in starts)


def parse_acl_config(data: bytes) -> AclConfig:
    """Read an acl.json as the runtime does. Raises NotUsable.

    Both spellings of a key are read; the runtime's own goes first.
    """
    try:
        loaded = load_json(data)
    except (ValueError, RecursionError) as error:
        raise NotUsable(f"it is no JSON: {error}") from error
    if not _has_only_strings(loaded):
        raise NotUsable("a value in it is no string")
    profiler = loaded.get("profiler") if isinstance(loaded, dict) else None
    if not isinstance(profiler, dict):
        raise NotUsable("it has no profiler object")
    if _text(profiler, SWITCH) != "on":
        raise NotUsable("its switch is not on")
    if not _text(profiler, OUTPUT):
        raise NotUsable("it has no output")
    config = AclConfig(
        output=_text(profiler, OUTPUT),
        interval=_text(profiler, "interval"),
        aicpu=_text(profiler, *_AICPU),
        acl_api=_text(profiler, "acl_api"),
        aic_metrics=_text(profiler, *_AIC_METRICS),
    )
    if not all(map(is_text, vars(config).values())):
        raise NotUsable("a value in it has a character that no text has")
    return config


def load_json(data: bytes) -> Any:
    """What the file holds, with the commas that the runtime takes. Raises ValueError, RecursionError."""
    return json.loads(_STRING_OR_LAST_COMMA.sub(lambda match: match.group(1) or "", data.decode("utf-8")))


def is_text(value: str) -> bool:
    """Whether it can be a path, and be told."""
    return _NO_TEXT.search(value) is None


def _text(profiler: dict[str, Any], *keys: str) -> str:
    found = (profiler[key] for key in keys if isinstance(profiler.get(key), str))
    return next(found, "")


def _has_only_strings(value: Any) -> bool:
    """Whether no value is a number, a boolean or null, on which the runtime's parser fails."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)
        elif not isinstance(current, str):
            return False
    return True
