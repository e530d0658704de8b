"""Bringing a version to a board and having it run; what ran before runs on until the new one answers, or again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.deploy.answering import answered
from profagent.deploy.lock import LOST_S
from profagent.deploy.settings import proposed
from profagent.deploy.steps import (
    checked_settings,
    cleared_versions,
    digest_check,
    digest_list,
    made_directories,
    part_of,
    settled,
    unstaged,
)
from profagent.deploy.trial import Switch, begun, confirmed, kept, script, taken_back
from profagent.deploy.units import installed_init, owned_init
from profagent.errors import ProfagentError, RefusedError, UnreachableError
from profagent.files import finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from pathlib import Path

    from profagent.deploy.daemon_tree import DaemonTree
    from profagent.deploy.layout import Layout
    from profagent.deploy.settings import BoardSettings
    from profagent.deploy.survey import BoardFacts
    from profagent.deploy.units import Service
    from profagent.link.boards_file import BoardEntry
    from profagent.link.messages import Board
    from profagent.ssh.remote import Remote

__all__ = ["Installation", "Target", "first_complaint", "is_whole"]


@dataclass(frozen=True, slots=True)
class Target:
    """What is to run, with which files, by path with content and mode, and without which."""

    version: str
    previous: str
    files: Mapping[str, tuple[bytes, int]]
    dropped: tuple[str, ...]


class Installation:
    """The work on one board."""

    def __init__(self, remote: Remote, facts: BoardFacts, layout: Layout, service: Service, owner: str) -> None:
        """`owner` has the board's lock."""
        self._remote = remote
        self._facts = facts
        self._layout = layout
        self._service = service
        self._owner = owner

    async def bring(self, version: DaemonTree, tell: Callable[[str], None]) -> None:
        """Have the version's directory arrive whole, unless it is one of those there, and undamaged."""
        facts = self._facts
        await self._remote.must(made_directories(self._layout, self._service))
        await self._remote.must(cleared_versions(self._layout, facts.current, facts.previous, version.name))
        if version.name in facts.versions and await is_whole(self._remote, self._layout, version):
            return
        tell(f"bringing {version.name}: {version.size_bytes / 1e6:.0f} MB")
        part = part_of(self._layout, version.name)
        await self._remote.unpack(_pieces(version), part)
        await self._remote.must(digest_check(part), digest_list(version.files))
        await self._remote.must(settled(self._layout, version.name))

    async def try_out(self, target: Target, settings: BoardSettings, entry: BoardEntry, keys: Path) -> Board:
        """Have a version run with files and settings, and answer; else what was there before is there, and runs, again.

        So it is when this is cancelled, and when the link is lost: the board does it by itself.
        """
        await self._prepare(target, settings)
        try:
            await finished(asyncio.create_task(self._begin()))
            board = await answered(self._remote, self._service, settings, entry, keys)
            await finished(asyncio.create_task(self._confirm()))
        except asyncio.CancelledError:
            await finished(asyncio.create_task(self._back()))
            raise
        except ProfagentError as error:
            raise await self._failed(target.version, error) from error
        return board

    async def _prepare(self, target: Target, settings: BoardSettings) -> None:
        """Have everything there but in its place, and approved of by the version itself."""
        layout, own = self._layout, self._service
        clear = unstaged(layout, own)
        await self._remote.must(clear)
        try:
            await self._stage(target.files)
            await self._check(target, settings)
        except ProfagentError:
            await self._remote.run(clear)
            raise
        switch = self._switch(target)
        await self._remote.must(kept(layout, switch))
        await self._remote.put(script(layout, own, switch, self._owner).encode(), f"{layout.trial}.part/run")

    async def _check(self, target: Target, settings: BoardSettings) -> None:
        """Have a version say what it thinks of settings and keys. Raises ProfagentError."""
        path = f"{self._layout.config}.new"
        await self._remote.put(proposed(settings.text, target.files).encode(), path)
        ran = await self._remote.run(checked_settings(self._layout, self._layout.version(target.version), path))
        if ran.status != 0:
            said = (ran.stderr or ran.stdout).decode("utf-8", "replace").strip() or ran.complaint
            why, hint = first_complaint(said, target.files)
            raise ProfagentError(f"{target.version} cannot run on {self._facts.hostname}: {why}", hint=hint)
        await self._remote.put(settings.text.encode(), path)

    def _switch(self, target: Target) -> Switch:
        facts = self._facts
        had_service = installed_init(self._layout, facts.files) is not None
        return Switch(
            tuple(target.files),
            target.dropped,
            target.version,
            target.previous,
            facts.current,
            facts.previous,
            had_service=had_service,
            stops_first=had_service and owned_init(self._layout, facts.files) is None,
        )

    async def _stage(self, files: Mapping[str, tuple[bytes, int]]) -> None:
        """Put files beside those that they are to replace."""
        for directory in sorted({path.rpartition("/")[0] for path in files}):
            await self._remote.must(f"mkdir -p {directory}")
        for path, (content, mode) in files.items():
            await self._remote.put(content, f"{path}.new", mode)

    async def _begin(self) -> None:
        ran = await self._remote.run(begun(self._layout, self._service.init, self._owner))
        if ran.status != 0:
            raise ProfagentError(
                f"the service on {self._facts.hostname} does not start: {ran.complaint}", hint="see its log there"
            )

    async def _confirm(self) -> None:
        if (await self._remote.run(confirmed(self._layout))).status != 0:
            raise ProfagentError(
                f"{self._facts.hostname} had not heard from this host for {LOST_S} s", hint="run this again"
            )

    async def _back(self) -> None:
        await self._remote.must(taken_back(self._layout))

    async def _failed(self, name: str, error: ProfagentError) -> ProfagentError:
        """What is said of a version that was taken back."""
        before = f"{self._facts.current} runs again" if self._facts.current else "nothing runs there"
        try:
            log = await self._remote.run(self._service.log)
            await finished(asyncio.create_task(self._back()))
        except UnreachableError as lost:
            return UnreachableError(
                f"{lost}; {self._facts.hostname} leads back by itself within {LOST_S} s: {before} then", hint=lost.hint
            )
        said = _last_message(log.stdout)
        kind = type(error) if isinstance(error, (UnreachableError, RefusedError)) else ProfagentError
        return kind(
            f"{name} was started and cannot be used: {error}; {before}"
            + (f"; its log ends with: {said}" if said else ""),
            hint=f"{error.hint}; where only SSH gets through, take --listen 127.0.0.1:50151",
        )

    async def tidy(self, current: str, previous: str) -> None:
        """Remove other versions."""
        await self._remote.must(cleared_versions(self._layout, current, previous))


async def is_whole(remote: Remote, layout: Layout, version: DaemonTree) -> bool:
    """Whether each file of a version is on the board as it is here, as far as the board can tell."""
    check = digest_check(layout.version(version.name))
    return (await remote.run(check, digest_list(version.files))).status == 0


def first_complaint(text: str, staged: Iterable[str]) -> tuple[str, str]:
    """The first mistake that `--check-config` names with its hint, else why the version does not run at all.

    The staged files are called by the names that they are to have.
    """
    for name in staged:
        text = text.replace(f"{name}.new", name)
    said = text.splitlines()
    if said[0].startswith("Traceback"):
        return said[-1], "that is its own fault, not the settings': bring it anew, or another version"
    mistakes = [line for line in said if not line.startswith(" ")]
    more = f"; and {len(mistakes) - 1} more" if len(mistakes) > 1 else ""
    has_hint = len(said) > 1 and said[1].startswith(" ")
    return f"{said[0]}{more}", said[1].strip() if has_hint else "see `profagent deploy --help`"


def _last_message(log: bytes) -> str:
    """A log's last line that is not indented, with what to do that stands below it."""
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if not line[0].isspace()]
    return ": ".join(line.strip() for line in lines[begins[-1] :]) if begins else ""


async def _pieces(version: DaemonTree) -> AsyncIterator[bytes]:
    for piece in version.tar():
        yield piece
