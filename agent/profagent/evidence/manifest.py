"""What a kit says of itself: its files with their digests, what was left out, what was replaced."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from profagent.errors import FormatError
from profagent.evidence.archive import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FORMAT", "LeftOut", "Listed", "Manifest", "faults", "listed", "manifest_text", "parse_manifest"]

FORMAT = "profagent evidence 1"
_KEYS = ("format", "tool", "sdk", "job", "simulated", "replaced", "files", "left_out")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of the kit: its name there, its size in bytes, its SHA-256, and what it is for."""

    name: str
    bytes: int
    sha256: str
    why: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Files of the JOB that are not in the kit."""

    what: str
    files: int
    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """`tool` made it; `sdk` is as its sender says; `replaced` is empty where nothing was."""

    tool: str
    sdk: str
    job: str
    simulated: bool
    replaced: tuple[str, ...]
    files: tuple[Listed, ...]
    left_out: tuple[LeftOut, ...]


def listed(name: str, content: bytes, why: str) -> Listed:
    """A file's line in the manifest."""
    return Listed(name, len(content), hashlib.sha256(content).hexdigest(), why)


def manifest_text(manifest: Manifest) -> bytes:
    """The manifest as JSON, in ASCII, the same for the same manifest."""
    return (json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1) + "\n").encode("ascii")


def parse_manifest(data: bytes) -> Manifest:
    """Read what `manifest_text` has written. Raises FormatError."""
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _fault("JSON", str(error)) from error
    if not isinstance(loaded, dict) or loaded.get("format") != FORMAT or set(loaded) != set(_KEYS):
        found = loaded.get("format") if isinstance(loaded, dict) else type(loaded).__name__
        raise _fault(f"{FORMAT!r} with its keys", repr(found)[:80])
    values = {key: value for key, value in loaded.items() if key != "format"}
    replaced = tuple(_list(values, "replaced"))
    if not all(isinstance(each, str) for each in replaced):
        raise _fault("texts in 'replaced'", repr(replaced)[:80])
    files = tuple(Listed(**_typed(each, _FILE)) for each in _list(values, "files"))
    left_out = tuple(LeftOut(**_typed(each, _LEFT_OUT)) for each in _list(values, "left_out"))
    texts = _typed({key: values[key] for key in _TEXTS}, _TEXTS)
    return Manifest(**texts, replaced=replaced, files=files, left_out=left_out)


def faults(manifest: Manifest, files: Mapping[str, bytes]) -> Iterator[str]:
    """What the files of a kit have that the manifest does not say, a sentence each."""
    named = {each.name: each for each in manifest.files}
    for name, each in named.items():
        content = files.get(name)
        if content is None:
            yield f"{name} is missing"
        elif listed(name, content, each.why) != each:
            yield f"{name} is not what the manifest says: its digest or size differs"
    for name in sorted(files.keys() - named.keys() - {MANIFEST}):
        yield f"{name} is not in the manifest"


_TEXTS: dict[str, type] = {"tool": str, "sdk": str, "job": str, "simulated": bool}
_FILE: dict[str, type] = {"name": str, "bytes": int, "sha256": str, "why": str}
_LEFT_OUT: dict[str, type] = {"what": str, "files": int, "bytes": int, "why": str}


def _list(values: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(values[key], list):
        raise _fault(f"a list {key!r}", type(values[key]).__name__)
    found: list[Any] = values[key]
    return found


def _typed(values: object, keys: Mapping[str, type]) -> dict[str, Any]:
    if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != dict(keys):
        raise _fault(f"an object with {', '.join(keys)}", repr(values)[:80])
    return values


def _fault(expected: str, found: str) -> FormatError:
    return FormatError(MANIFEST, 0, expected, found, hint="the kit is damaged, or of another version of profagent")
