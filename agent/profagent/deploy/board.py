"""A board that is looked at, and what is to be so there: its identity, settings and service."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.deploy.plan import board_name, choose_init
from profagent.deploy.settings import BoardSettings, board_settings
from profagent.deploy.survey import survey
from profagent.deploy.units import Service, check_owner, named_roots, service
from profagent.link.boards_file import BoardEntry, BoardsFile, check_same
from profagent.link.credentials import own_consumer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from profagent.deploy.deploying import DeployOptions
    from profagent.deploy.layout import Layout
    from profagent.deploy.survey import BoardFacts
    from profagent.ssh.remote import Remote

# Each board's own, the surest first.
_HARDWARE = ("mac", "serial")
# An image's, made anew at a first boot if its maker saw to that.
_IMAGE = ("machine-id", "host-key")


@dataclass(frozen=True, slots=True)
class DeployBoard:
    """A board, what it is, and what was deployed there or is to be."""

    layout: Layout
    reached_by: str
    facts: BoardFacts
    settings: BoardSettings
    service: Service
    entry: BoardEntry
    copied_from: BoardEntry | None
    """Another machine, which has the identity that is written here."""

    def differing(self, keys: Mapping[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
        """Identity, keys, service and settings that are not on the board like that. A key goes with its certificate."""
        wanted = {
            self.layout.board_id: (f"{self.entry.uuid}\n".encode(), 0o644),
            **keys,
            **{path: (text.encode(), mode) for path, (text, mode) in self.service.files.items()},
            self.layout.config: (self.settings.text.encode(), 0o644),
        }
        texts = self.facts.files
        return {path: file for path, file in wanted.items() if texts.get(path) != file[0].decode("utf-8", "replace")}


async def looked_at(remote: Remote, options: DeployOptions) -> DeployBoard:
    """The board; nothing is written. Raises UsageError, ProfagentError, UnreachableError."""
    options.asked.check()
    layout, entries = options.layout, BoardsFile().entries()
    facts = await survey(remote, layout)
    check_owner(layout, facts.files, facts.hostname)
    init = choose_init(facts, options.init, layout)
    marks = (*facts.marks, *([f"host-key:{remote.host_key}"] if remote.host_key else ()))
    known = recognised(entries.values(), facts.files.get(layout.board_id, "").strip(), options.target, marks)
    config = facts.files.get(layout.config, "")
    settings = board_settings(config, options.asked, layout, init, known.identity, own_consumer())
    entry = BoardEntry(
        options.name or (known.entry.name if known.entry else board_name(facts)),
        settings.address(remote.host),
        known.identity,
        known.entry.fingerprint if known.entry and settings.has_tls else "",
        options.target,
        " ".join(marks),
        "" if layout.is_usual else layout.prefix,
    ).check("--name")
    check_same(entry, entries)
    roots = (*settings.roots, *named_roots(facts.files, layout))
    own = service(init, layout, roots, deletes=settings.deletes)
    return DeployBoard(layout, remote.host, facts, settings, own, entry, known.copied_from)


@dataclass(frozen=True, slots=True)
class Recognised:
    """A board's identity from now on, and what is known of the board."""

    identity: str
    entry: BoardEntry | None = None
    copied_from: BoardEntry | None = None
    """The board whose identity is written here, and which is another machine."""


def recognised(entries: Iterable[BoardEntry], written: str, target: str, marks: Collection[str]) -> Recognised:
    """The board with a written identity ("": none), that SSH calls `target` and whose machine has these marks.

    One that has none and is known by its SSH name was flashed anew, and gets its own again.
    """
    found = next((entry for entry in entries if (entry.uuid == written if written else entry.ssh == target)), None)
    if found is None:
        return Recognised(written or str(uuid.uuid4()))
    # Who flashes a board anew changes what an image brings, and leaves the machine.
    if _is_another_machine(found.machine.split(), marks, by_image=bool(written)):
        return Recognised(str(uuid.uuid4()), copied_from=found if written else None)
    return Recognised(written or found.uuid or str(uuid.uuid4()), found)


def _is_another_machine(before: Collection[str], now: Collection[str], *, by_image: bool) -> bool:
    """Whether these are not the marks of one machine; False where nothing tells."""
    for kind in _HARDWARE:
        if (old := _of(before, (kind,))) and (new := _of(now, (kind,))):
            return not old & new
    shared = [kind for kind in _IMAGE if _of(before, (kind,)) and _of(now, (kind,))] if by_image else []
    return bool(shared) and not _of(before, shared) & _of(now, shared)


def _of(marks: Iterable[str], kinds: Collection[str]) -> set[str]:
    return {mark for mark in marks if mark.partition(":")[0] in kinds}
