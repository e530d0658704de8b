"""A board that is logged in to and looked at, and what is to be so there; nothing is written until it is worked on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from profagent.commands.board_lock import locked
from profagent.commands.board_survey import survey
from profagent.commands.boards_file import BoardEntry, BoardsFile, check_same
from profagent.commands.installing import Installation, Target
from profagent.commands.recognising import recognised
from profagent.commands.recording_options import own_consumer
from profagent.deploy.plan import board_name, choose_init, fact_lines
from profagent.deploy.settings import BoardSettings, board_settings
from profagent.deploy.steps import named_roots
from profagent.deploy.trial import taken_back
from profagent.deploy.units import Service, service
from profagent.errors import ProfagentError
from profagent.ssh.connection import connect
from profagent.ssh.passwords import Person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from profagent.commands.deploying import DeployOptions
    from profagent.deploy.layout import Layout
    from profagent.deploy.survey import BoardFacts
    from profagent.ssh.remote import Remote

__all__ = ["Visit", "visited"]


@dataclass(frozen=True, slots=True)
class Visit:
    """A board that is logged in to, what it is, and what was deployed there or is to be."""

    remote: Remote
    layout: Layout
    facts: BoardFacts
    settings: BoardSettings
    service: Service
    entry: BoardEntry
    copied_from: BoardEntry | None
    """Another machine, which has the identity that is written here."""

    def differing(self, files: Mapping[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
        """Those that are not on the board like that. A key is not read: it goes with its certificate."""
        texts = self.facts.files
        return {path: file for path, file in files.items() if texts.get(path) != file[0].decode("utf-8", "replace")}

    def service_files(self) -> dict[str, tuple[bytes, int]]:
        """What the service lacks, by path, with content and mode."""
        return self.differing({path: (text.encode(), mode) for path, (text, mode) in self.service.files.items()})

    def target(self, version: str, previous: str, files: Mapping[str, tuple[bytes, int]] | None = None) -> Target:
        """A version with its service and settings, and more files."""
        settings = {self.layout.config: (self.settings.text.encode(), 0o644)}
        return Target(version, previous, {**(files or {}), **self.service_files(), **settings}, self.service.unwanted)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Installation]:
        """The work on the board, which nobody else does meanwhile. Raises ProfagentError, UnreachableError."""
        async with locked(self.remote, self.layout.lock(self.service.init)) as owner:
            if not self.facts.is_deployed_like(await survey(self.remote, self.layout)):
                raise ProfagentError(
                    f"another deployment has changed {self.facts.hostname} meanwhile", hint="run this again"
                )
            yield Installation(self.remote, self.facts, self.layout, self.service, owner)


@asynccontextmanager
async def visited(options: DeployOptions, show: Callable[[str], None]) -> AsyncIterator[Visit]:
    """The board, logged in to and looked at; nothing is written. Raises as `deploy`."""
    options.asked.check()
    async with connect(options.target, Person()) as remote:
        facts = await _settled(remote, options, show)
        for line in fact_lines(facts, datetime.now(UTC)):
            show(line)
        yield _planned(remote, facts, options)


def _planned(remote: Remote, facts: BoardFacts, options: DeployOptions) -> Visit:
    layout, texts, entries = options.layout, facts.files, BoardsFile().entries()
    init = choose_init(facts, options.init, layout)
    marks = (*facts.marks, *([f"host-key:{remote.host_key}"] if remote.host_key else ()))
    board = recognised(entries.values(), texts.get(layout.board_id, "").strip(), options.target, marks)
    config = texts.get(layout.config, "")
    settings = board_settings(config, options.asked, layout, init, board.identity, own_consumer())
    entry = BoardEntry(
        options.name or (board.entry.name if board.entry else board_name(facts)),
        settings.address(remote.host),
        board.identity,
        board.entry.fingerprint if board.entry and settings.has_tls else "",
        options.target,
        " ".join(marks),
        "" if layout.is_usual else layout.prefix,
    ).check("--name")
    check_same(entry, entries)
    roots = (*settings.roots, *named_roots(texts, layout))
    own = service(init, layout, roots, deletes=settings.deletes)
    return Visit(remote, layout, facts, settings, own, entry, board.copied_from)


async def _settled(remote: Remote, options: DeployOptions, show: Callable[[str], None]) -> BoardFacts:
    """The board, on which no deployment is on trial any more; but for a dry run, which leaves it so."""
    facts = await survey(remote, options.layout)
    if not facts.is_on_trial:
        return facts
    show("change   what an interrupted deployment changed is taken back first")
    if options.is_dry:
        return facts
    async with locked(remote, options.layout.lock(choose_init(facts, options.init, options.layout))):
        await remote.must(taken_back(options.layout))
    return await survey(remote, options.layout)
