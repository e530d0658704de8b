"""Bringing a project to a board: only what is not there already, by content."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profagent.collect.project import difference, is_plain_name, read_digests
from profagent.collect.project_steps import MANIFEST, OWN, digests, listing, manifest, read_listing, removal
from profagent.commands.local_project import project_tar, project_tree, sizes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from profagent.collect.project import Tree
    from profagent.ssh.remote import Remote

__all__ = ["Uploaded", "upload_project"]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What was done: names."""

    sent: tuple[str, ...]
    removed: tuple[str, ...]
    sent_bytes: int
    total: int


async def upload_project(
    remote: Remote,
    project: Path,
    directory: str,
    left_out: Collection[Path] = (),
    on_progress: Callable[[int, int], None] = lambda _sent, _total: None,
) -> Uploaded:
    """Make a directory of the board hold what the project holds; `on_progress` is told bytes sent, and of how many.

    Removed there is only what an earlier upload put there. Raises UsageError, ProfagentError, UnreachableError; what
    was sent by then stays, and is known as ours.
    """
    tool, *put = (await remote.must(manifest(directory))).text.splitlines()
    put = [name for name in put if is_plain_name(name)]
    wanted = await asyncio.to_thread(project_tree, project, tool, left_out)
    found = await _found(remote, directory, [*dict.fromkeys((*wanted, *put))], tool)
    plan = difference(wanted, found, put)
    size = await asyncio.to_thread(sizes, project, plan.send)
    if plan.send or plan.remove or set(put) != set(plan.put):
        # Names first: a link that drops must leave nothing that is not known as ours.
        await _remember(remote, directory, dict.fromkeys((*put, *plan.put)))
        await remote.must(removal(directory), _lines(plan.remove))
        await remote.unpack(
            _pieces(project_tar(project, plan.send)), directory, lambda sent: on_progress(min(sent, size), size)
        )
        await _remember(remote, directory, plan.put)
    return Uploaded(plan.send, plan.remove, size, len(wanted))


async def _found(remote: Remote, directory: str, names: list[str], tool: str) -> Tree:
    """What is on the board under these names."""
    answer = await remote.must(listing(directory), _lines(names))
    found = read_listing(names, answer.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1])
    files = [name for name, entry in found.items() if entry.kind == "file"]
    if tool == "none" or not files:
        return found
    told = (await remote.must(digests(directory, tool), _lines(files))).stdout.decode("utf-8", "surrogateescape")
    known = read_digests(told.splitlines(), tool)
    return {
        name: replace(entry, content=known.get(f"./{name}", "")) if entry.kind == "file" else entry
        for name, entry in found.items()
    }


async def _remember(remote: Remote, directory: str, names: Iterable[str]) -> None:
    await remote.must(f"mkdir -p {shlex.quote(directory)}/{OWN}")
    await remote.put(_lines(names), f"{directory}/{MANIFEST}")


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")


async def _pieces(tar: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read on a thread: the files of a project may be large."""
    while piece := await asyncio.to_thread(next, tar, b""):
        yield piece
