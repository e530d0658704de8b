"""Bringing a version to a board and having it run; what ran before runs on until the new one answers, or again."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

from profagent.commands.answering import answered
from profagent.commands.to_the_end import finished
from profagent.deploy.steps import (
    checked_settings,
    cleared_versions,
    digest_check,
    digest_list,
    made_directories,
    moved,
    part_of,
    settled,
    switched,
)
from profagent.errors import ProfagentError, RefusedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from pathlib import Path

    from profagent.commands.boards_file import BoardEntry
    from profagent.deploy.daemon_tree import DaemonTree
    from profagent.deploy.layout import Layout
    from profagent.deploy.settings import BoardSettings
    from profagent.deploy.survey import BoardFacts
    from profagent.deploy.units import Service
    from profagent.link.messages import Board
    from profagent.ssh.remote import Remote

__all__ = ["Installation"]


class Installation:
    """The work on one board."""

    def __init__(
        self, remote: Remote, facts: BoardFacts, layout: Layout, service: Service, tell: Callable[[str], None]
    ) -> None:
        self._remote = remote
        self._facts = facts
        self._layout = layout
        self._service = service
        self._tell = tell

    async def bring(self, version: DaemonTree) -> None:
        """Have the version's directory arrive whole, next to those that are there, unless it is one of them."""
        await self._remote.must(made_directories(self._layout))
        if version.name in self._facts.versions:
            return
        facts = self._facts
        await self._remote.must(cleared_versions(self._layout, facts.current, facts.previous))
        self._tell(f"bringing {version.name}: {version.size_bytes / 1e6:.0f} MB")
        part = part_of(self._layout, version.name)
        await self._remote.unpack(_pieces(version), part)
        await self._remote.must(digest_check(part), digest_list(version.files))
        await self._remote.must(settled(self._layout, version.name))

    async def write(self, files: Mapping[str, tuple[bytes, int]]) -> None:
        """Put files beside those that they replace, then have them take their places in one go."""
        await self._stage(files)
        if files:
            await self._remote.must(" && ".join(moved(files)))

    async def check(self, name: str, settings: BoardSettings) -> None:
        """Have a version say what it thinks of settings. Raises ProfagentError."""
        proposed = f"{self._layout.config}.new"
        await self._remote.put(settings.text.encode(), proposed)
        ran = await self._remote.run(checked_settings(self._layout, self._layout.version(name), proposed))
        if ran.status != 0:
            said = (ran.stderr or ran.stdout).decode("utf-8", "replace").strip().splitlines() or [ran.complaint]
            raise ProfagentError(
                f"{name} cannot run on {self._facts.hostname}: {said[0]}",
                hint=said[-1].strip() if len(said) > 1 else "see `profagent deploy --help`",
            )

    async def run(self, current: str, previous: str, settings: BoardSettings, entry: BoardEntry, keys: Path) -> Board:
        """Have a version run, with settings that were checked, and answer; else what was there before runs again.

        So it does when this is cancelled.
        """
        facts, own = self._facts, self._service
        files = {
            path: (text.encode(), mode) for path, (text, mode) in own.files.items() if facts.files.get(path) != text
        }
        files[self._layout.config] = (settings.text.encode(), 0o644)
        try:
            await finished(asyncio.create_task(self._change(files, own.unwanted, current, previous)))
            return await answered(self._remote, settings, entry, keys, self.is_active)
        except asyncio.CancelledError:
            await finished(asyncio.create_task(self._back(files)))
            raise
        except ProfagentError as error:
            reason = await self._explained(current, error)
            await finished(asyncio.create_task(self._back(files)))
            raise reason from error

    async def _back(self, files: Iterable[str]) -> None:
        """Have what was found run again, with these files as they were found; without any version, nothing."""
        facts = self._facts
        if facts.current:
            await self._change(self._before(files), set(files) - set(facts.files), facts.current, facts.previous)
        else:
            await self._remote.run(self._service.stop)
            await self._remote.must(switched(self._layout, "", ""))

    def _before(self, files: Iterable[str]) -> dict[str, tuple[bytes, int]]:
        """These files, and those that the service does not have any more, as they were found."""
        texts, own = self._facts.files, self._service.files
        paths = [path for path in (*files, *self._service.unwanted) if path in texts]
        return {path: (texts[path].encode(), own[path][1] if path in own else 0o644) for path in paths}

    async def _change(
        self, files: Mapping[str, tuple[bytes, int]], dropped: Iterable[str], current: str, previous: str
    ) -> None:
        """Files, links and the start of the service in one command, which a link that drops does not part."""
        await self._stage(files)
        before = [*moved(files), *(f"rm -f {shlex.quote(path)}" for path in dropped)]
        after = (self._service.enable, self._service.restart)
        ran = await self._remote.run(switched(self._layout, current, previous, before, after))
        if ran.status != 0:
            raise ProfagentError(
                f"the service on {self._facts.hostname} does not start: {ran.complaint}", hint="see its log there"
            )

    async def _stage(self, files: Mapping[str, tuple[bytes, int]]) -> None:
        for directory in sorted({path.rpartition("/")[0] for path in files}):
            await self._remote.must(f"mkdir -p {directory}")
        for path, (content, mode) in files.items():
            await self._remote.put(content, f"{path}.new", mode)

    async def is_active(self) -> bool:
        """Whether the service runs."""
        return (await self._remote.run(self._service.is_active)).status == 0

    async def tidy(self, current: str, previous: str) -> None:
        """Remove other versions."""
        await self._remote.must(cleared_versions(self._layout, current, previous))

    async def _explained(self, name: str, error: ProfagentError) -> ProfagentError:
        """The error, with what the daemon said last."""
        log = await self._remote.run(self._service.log)
        said = log.stdout.decode("utf-8", "replace").strip().splitlines()
        before = f"{self._facts.current} runs again" if self._facts.current else "nothing runs there"
        kind = type(error) if isinstance(error, (UnreachableError, RefusedError)) else ProfagentError
        return kind(
            f"{name} was started and cannot be used: {error}; {before}"
            + (f"; its log ends with: {said[-1].strip()}" if said else ""),
            hint=f"{error.hint}; where only SSH gets through, take --listen 127.0.0.1:50151 and --via ssh",
        )


async def _pieces(version: DaemonTree) -> AsyncIterator[bytes]:
    for piece in version.tar():
        yield piece
