"""The directories below which JOBs are looked for: those that are named, and those that files of a directory name."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.filesystems import is_remote
from profagentd.mistakes import Mistake
from profagentd.settings import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HINT = "a line is the absolute path of a directory, or a remark that begins with #"


def read_roots_d(directory: str) -> tuple[dict[str, str], list[Mistake]]:
    """Roots of the directory's `*.conf`, a line each, with their places; and lines that are none."""
    roots: dict[str, str] = {}
    mistakes: list[Mistake] = []
    for path in sorted(Path(directory).glob("*.conf")):
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            mistakes.append(Mistake(str(path), str(why), "make it a readable text file, or take it away"))
            continue
        for place, line in _lines(path, text):
            if line.startswith("/"):
                roots.setdefault(line, place)
            else:
                mistakes.append(Mistake(place, f"{line!r} is no absolute path", _HINT))
    return roots, mistakes


def relative_mistakes(roots: Sequence[str], place: str) -> list[Mistake]:
    """Roots that depend on the directory in which the daemon happens to start."""
    hint = "begin it with /: the daemon may start in any directory"
    return [Mistake(place, f"roots: {root!r} is no absolute path", hint) for root in roots if not root.startswith("/")]


def real_roots(roots: Sequence[str]) -> list[bytes]:
    """The roots as absolute paths without links; they need not exist yet. DaemonError when one lies in another."""
    for mistake in overlap_mistakes([(root, ARGUMENTS) for root in roots]):
        raise mistake.error()
    return [_real(root) for root in roots]


def overlap_mistakes(roots: Sequence[tuple[str, str]]) -> list[Mistake]:
    """Roots, given with their places, that lie in another one or are named twice."""
    hint = "name only the upper one, and look deeper with --depth"
    found = [(root, place, _real(root)) for root, place in roots]
    pairs = [(lower, upper) for lower, upper in itertools.combinations(found, 2) if lie_together(lower[2], upper[2])]
    ordered = [(one, other) if len(one[2]) > len(other[2]) else (other, one) for one, other in pairs]
    return [Mistake(place, f"roots: {lower} lies in {upper}", hint) for (lower, place, _), (upper, _, _) in ordered]


def lie_together(one: bytes, other: bytes) -> bool:
    """Whether two real paths are the same, or one lies in the other."""
    upper, lower = sorted((os.path.join(one, b""), os.path.join(other, b"")), key=len)
    return lower.startswith(upper)


def _lines(path: Path, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield f"{path}:{number}", line.strip()


def _real(root: str) -> bytes:
    """The path without links; a network's file system is not asked, it may not answer."""
    path = os.fsencode(os.path.abspath(root))
    return path if is_remote(path) else os.path.realpath(path)
