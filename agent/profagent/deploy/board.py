"""A board that is looked at, and what is to be so there: its identity, settings and service."""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.deploy.daemon_tree import DaemonTree, launcher, own_packages, unpack, wheel_files
from profagent.deploy.settings import BoardSettings, board_settings
from profagent.deploy.survey import survey
from profagent.deploy.units import INITS, Service, check_owner, installed_init, named_roots, owned_init, service
from profagent.deploy.wheels import OLDEST_PYTHON, fetch_wheels
from profagent.errors import ProfagentError, UsageError
from profagent.link.boards_file import BoardEntry, BoardsFile, check_same
from profagent.link.credentials import own_consumer
from profagent.link.messages import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from profagent.deploy.deploying import DeployOptions
    from profagent.deploy.survey import BoardFacts
    from profagent.deploy.units import Layout
    from profagent.ssh.remote import Remote


# A board tells its time in whole seconds.
CLOCK_RESOLUTION_S = 2

PYTHONS = ("auto", "system", "bundled")
_BUNDLE = (
    "bring one: `profagent bundle --arch {} --libraries DIR -o FILE.tar.gz`, with Debian's libc6, libgcc-s1, libstdc++6"
    " and zlib1g unpacked in DIR, then `--bundle FILE.tar.gz`"
)
# Besides the version's own files: links, settings, the room that a file system takes for itself.
_ROOM_BYTES = 2 << 20
_MIB = 1 << 20
_NAMELESS = ("", "(none)", "localhost")


def choose_python(facts: BoardFacts, wish: str, bundled_for: str | None) -> str:
    """`system` or `bundled`, of PYTHONS; `bundled_for` is the machine of the bundle that is there to be taken.

    Raises ProfagentError, UsageError when it cannot be.
    """
    hint = _BUNDLE.format(facts.machine)
    if wish == "bundled" and bundled_for is None:
        raise UsageError("--python bundled needs --bundle FILE", hint=hint)
    if wish == "system" and bundled_for is not None:
        raise UsageError("--bundle goes with --python bundled, or auto", hint="leave one of them out")
    why = _unfit(facts)
    if wish != "bundled" and why is None:
        return "system"
    if bundled_for is None:
        raise ProfagentError(f"{facts.hostname} {why}", hint=hint)
    if bundled_for != facts.machine:
        raise ProfagentError(f"the bundle is for {bundled_for}, and {facts.hostname} is {facts.machine}", hint=hint)
    return "bundled"


async def chosen_version(facts: BoardFacts, wish: str, bundle: Path | None, wheelhouse: Path | None) -> DaemonTree:
    """The version directory for a board: of a bundle, or for its own Python. Raises ProfagentError, UsageError."""
    bundled = await asyncio.to_thread(unpack, bundle) if bundle else None
    if choose_python(facts, wish, bundled.about["machine"] if bundled else None) == "bundled":
        assert bundled is not None, "it was chosen"
        return bundled
    python = facts.python
    assert python is not None, "it was chosen"
    wheels = await fetch_wheels(python, wheelhouse)
    return await asyncio.to_thread(
        lambda: DaemonTree.of(__version__, launcher(python.path), {**own_packages(), **wheel_files(wheels)})
    )


def _unfit(facts: BoardFacts) -> str | None:
    """Why the board's own Python will not do."""
    if facts.python is None:
        return f"has no Python {'.'.join(map(str, OLDEST_PYTHON))} or later"
    if facts.lacks:
        return f"has Python {facts.python.shown} without {' and '.join(facts.lacks)}"
    if not facts.python.platforms:
        return f"has {facts.libc}, for which there are no wheels of grpcio"
    return None


def choose_init(facts: BoardFacts, wish: str, layout: Layout) -> str:
    """One of INITS. Raises UsageError where the user may not, or another one has the service."""
    installed = installed_init(layout, facts.files)
    chosen = (installed or facts.init) if wish == "auto" else wish
    assert chosen in INITS
    if installed not in (None, chosen):
        raise UsageError(
            f"the service on {facts.hostname} was deployed with --init {installed}",
            hint="leave --init out, or `profagent deploy … --remove` first",
        )
    if chosen == "systemd" and facts.init != "systemd":
        raise UsageError(f"{facts.hostname} does not run systemd", hint="take --init auto")
    if chosen != "none" and facts.uid != 0:
        raise UsageError(
            f"{facts.user} may not install a service on {facts.hostname}",
            hint="log in as root; or take --init none --prefix with a directory of your own, and start it yourself",
        )
    return chosen


def check_room(facts: BoardFacts, layout: Layout, size_bytes: int) -> None:
    """Raises ProfagentError where the prefix cannot be written to, or has no room for so much."""
    if not facts.is_writable:
        raise ProfagentError(
            f"{facts.place} on {facts.hostname} cannot be written to by {facts.user}",
            hint="log in as root, remount it with `mount -o remount,rw`, or take --prefix on another file system",
        )
    needed = _ROOM_BYTES + size_bytes
    if facts.free_bytes is not None and facts.free_bytes < needed:
        raise ProfagentError(
            f"{layout.prefix} on {facts.hostname} has {facts.free_bytes / _MIB:.1f} MiB free, and"
            f" {needed / _MIB:.1f} MiB are needed",
            hint="make room there, or take --prefix on another file system",
        )


def check_version(facts: BoardFacts, name: str, *, is_upgrade: bool) -> None:
    """Raises UsageError when another version would be replaced unasked, or there is none to upgrade."""
    if is_upgrade and not facts.current:
        raise UsageError(f"there is nothing to upgrade on {facts.hostname}", hint="leave --upgrade out")
    if facts.current not in ("", name) and not is_upgrade:
        raise UsageError(
            f"{facts.hostname} has {facts.current}, and this is {name}",
            hint="--upgrade puts it in its place; --rollback goes back to the one before",
        )


def is_deployed(facts: BoardFacts, layout: Layout) -> bool:
    """Whether something of a deployment to this layout is there."""
    is_served = owned_init(layout, facts.files) is not None
    return is_served or layout.config in facts.files or bool(facts.current)


def board_name(facts: BoardFacts) -> str:
    """A name for boards.toml by the host name. Raises UsageError where that is none."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", facts.hostname).strip("-_")[:63]
    if not name or facts.hostname in _NAMELESS:
        raise UsageError(f"the board calls itself {facts.hostname!r}", hint="give it a name with --name")
    return name


def fact_lines(facts: BoardFacts, now: datetime) -> Iterator[str]:
    """What the board is, for people, a line each; `now` is the host's time."""
    model = f", {facts.model}" if facts.model else ""
    yield f"board    {facts.hostname}{model}: {facts.machine}, Linux {facts.kernel}, {facts.libc or 'libc N/A'}"
    python = "no Python 3.9 or later" if facts.python is None else f"Python {facts.python.shown} ({facts.python.path})"
    yield f"python   {python}{', without ' + ', '.join(facts.lacks) if facts.lacks else ''}"
    version = f" {facts.systemd}" if facts.init == "systemd" and facts.systemd else ""
    yield f"init     {facts.init}{version}; logged in as {facts.user}"
    free = "N/A" if facts.free_bytes is None else f"{facts.free_bytes / _MIB:.0f} MiB free"
    yield f"disk     {facts.place}: {free}{'' if facts.is_writable else ', cannot be written to'}"
    yield f"clock    {_clock(facts.clock, now)}"
    yield f"npu      {_NPU[facts.npu] if facts.npu in _NPU else ', '.join(facts.npu)}"


_NPU = {
    (): "none is loaded: no /dev/svp_npu",
    ("svp_npu",): "/dev/svp_npu",
    ("pqp",): "another stack (pqp), which does not profile with svp_acl",
    ("svp_npu", "pqp"): "/dev/svp_npu, and another stack (pqp), which does not profile with svp_acl",
}


def _clock(clock: datetime | None, now: datetime) -> str:
    if clock is None:
        return "N/A"
    if clock < EARLIEST:
        return f"{clock:%Y-%m-%d %H:%M} UTC: never set. Certificates hold since 1970, so it works; times will be odd"
    ahead_s = round((clock - now).total_seconds())
    if abs(ahead_s) <= CLOCK_RESOLUTION_S:
        return f"{clock:%Y-%m-%d %H:%M} UTC, as this host's to within {CLOCK_RESOLUTION_S} s"
    return f"{clock:%Y-%m-%d %H:%M} UTC, {ahead_s:+d} s from this host's"


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
