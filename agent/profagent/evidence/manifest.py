"""What a kit says of itself: its files with their digests, what was left out, what was replaced."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

__all__ = ["FORMAT", "LeftOut", "Listed", "Manifest", "listed", "manifest_text"]

FORMAT = "profagent evidence 1"


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
