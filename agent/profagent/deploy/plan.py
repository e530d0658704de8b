"""What is to be done on a board, by what it is and what was asked for; or why it cannot be, and what would help."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from profagent.deploy.steps import is_version
from profagent.deploy.units import INITS, installed_init, owned_init
from profagent.deploy.wheels import OLDEST_PYTHON
from profagent.errors import ProfagentError, UsageError
from profagent.link.messages import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from profagent.deploy.daemon_tree import DaemonTree
    from profagent.deploy.layout import Layout
    from profagent.deploy.survey import BoardFacts

# A board tells its time in whole seconds.
CLOCK_RESOLUTION_S = 2

__all__ = [
    "PYTHONS",
    "board_name",
    "check_room",
    "check_version",
    "choose_init",
    "choose_python",
    "fact_lines",
    "is_deployed",
]

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


def check_room(facts: BoardFacts, layout: Layout, version: DaemonTree, *, is_there: bool) -> None:
    """Raises ProfagentError where the prefix cannot be written to, or no room for a version that is not there whole.

    What else interrupted deployments have left is removed before it is brought; one that is damaged only afterwards.
    """
    if not facts.is_writable:
        raise ProfagentError(
            f"{facts.place} on {facts.hostname} cannot be written to by {facts.user}",
            hint="log in as root, remount it with `mount -o remount,rw`, or take --prefix on another file system",
        )
    needed = _ROOM_BYTES + (0 if is_there else version.size_bytes)
    left = sum(size for name, size in facts.leftovers.items() if name != version.name)
    if facts.free_bytes is not None and facts.free_bytes + left < needed:
        raise ProfagentError(
            f"{layout.prefix} on {facts.hostname} has {(facts.free_bytes + left) / _MIB:.1f} MiB free, and"
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
    return is_served or layout.config in facts.files or any(map(is_version, facts.versions))


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
