"""The directories below which JOBs are looked for: those that are named, and those that files of a directory name."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from profagentd.errors import ARGUMENTS, Mistake, not_utf8
from profagentd.loop import until_first
from profagentd.sources.files import is_remote

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator

    _Work = Callable[[bytes], Coroutine[Any, Any, None]]
    from collections.abc import Mapping, Sequence


class Roots:
    """Absolute paths without links, in the order in which they were named."""

    def __init__(self, roots: Iterable[bytes]) -> None:
        self._roots = list(roots)
        self._waiting: list[asyncio.Queue[bytes]] = []

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._roots)

    def __len__(self) -> int:
        return len(self._roots)

    def add(self, root: bytes) -> None:
        """One more."""
        self._roots.append(root)
        for queue in self._waiting:
            queue.put_nowait(root)

    async def each(self, work: _Work) -> None:
        """Do the work for each root that there is or comes, all at once; what the first one raises is raised."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for root in self._roots:
            queue.put_nowait(root)
        self._waiting.append(queue)
        try:
            await _for_each(queue, work)
        finally:
            self._waiting.remove(queue)


async def _for_each(queue: asyncio.Queue[bytes], work: _Work) -> None:
    root = await queue.get()
    await until_first(work(root), _for_each(queue, work))


_HINT = "a line is the absolute path of a directory, or a remark that begins with #"


def read_roots_d(directory: str, named_at: str = ARGUMENTS) -> tuple[dict[str, str], list[Mistake]]:
    """Roots of the directory's `*.conf`, a line each, with their places; and lines that are none.

    `named_at`: where the directory is named.
    """
    roots: dict[str, str] = {}
    mistakes: list[Mistake] = []
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return roots, mistakes  # it may come, and SIGHUP with it
    except OSError as error:
        hint = "roots_d is a directory that the daemon may read"
        return roots, [Mistake(named_at, f"roots_d: {directory}: {error.strerror}", hint)]
    for path in (Path(directory, name) for name in names if name.endswith(".conf")):
        text = _text(path)
        if isinstance(text, Mistake):
            mistakes.append(text)
            continue
        for place, line in _lines(path, text):
            if line.startswith("/") and "\0" not in line:
                roots.setdefault(line, place)
            else:
                mistakes.append(Mistake(place, f"{line!r} is no absolute path", _HINT))
    return roots, mistakes


def relative_mistakes(roots: Sequence[str], place: str) -> list[Mistake]:
    """Roots that depend on the directory in which the daemon happens to start."""
    hint = "begin it with /: the daemon may start in any directory"
    return [Mistake(place, f"roots: {root!r} is no absolute path", hint) for root in roots if not root.startswith("/")]


def file_mistakes(roots: Mapping[str, str]) -> list[Mistake]:
    """Roots, given with their places, where something stands that is no directory."""
    hint = "name the directory that holds JOBs; it need not exist yet"
    return [Mistake(place, f"roots: {root} is no directory", hint) for root, place in roots.items() if _is_file(root)]


def _is_file(root: str) -> bool:
    path = os.fsencode(os.path.abspath(root))
    return not is_remote(path) and os.path.exists(path) and not os.path.isdir(path)


def real_roots(roots: Sequence[str]) -> list[bytes]:
    """The roots as absolute paths without links; they need not exist yet. DaemonError when one lies in another."""
    for mistake in overlap_mistakes([(root, ARGUMENTS) for root in roots]):
        raise mistake.error()
    return [_real(root) for root in roots]


def overlap_mistakes(roots: Sequence[tuple[str, str]]) -> list[Mistake]:
    """Roots, given with their places, that lie in another one or are named twice; each such pair once."""
    found = [(root, place, _real(root)) for root, place in roots]
    pairs = itertools.combinations(found, 2)
    return list(dict.fromkeys(_overlap(*pair) for pair in pairs if lie_together(pair[0][2], pair[1][2])))


def _overlap(one: tuple[str, str, bytes], other: tuple[str, str, bytes]) -> Mistake:
    (upper, _, upper_path), (lower, place, lower_path) = sorted((one, other), key=lambda root: len(root[2]))
    if lower_path == upper_path:
        what = f"{lower} is named twice" if lower == upper else f"{lower} is the same directory as {upper}"
        return Mistake(place, f"roots: {what}", "name it once")
    return Mistake(place, f"roots: {lower} lies in {upper}", "name only the upper one, and look deeper with --depth")


def lie_together(one: bytes, other: bytes) -> bool:
    """Whether two real paths are the same, or one lies in the other."""
    upper, lower = sorted((os.path.join(one, b""), os.path.join(other, b"")), key=len)
    return lower.startswith(upper)


def _text(path: Path) -> str | Mistake:
    hint = "make it a readable text file, or take it away"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return Mistake(str(path), "no regular file", hint)  # a fifo would be waited for
        return path.read_text("utf-8")
    except OSError as error:
        return Mistake(str(path), str(error.strerror), hint)
    except UnicodeDecodeError as error:
        return not_utf8(path, error, hint)


def _lines(path: Path, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield f"{path}:{number}", line.strip()


def _real(root: str) -> bytes:
    """The path without links; a network's file system is not asked, it may not answer."""
    path = os.fsencode(os.path.abspath(root))
    return path if is_remote(path) else os.path.realpath(path)
