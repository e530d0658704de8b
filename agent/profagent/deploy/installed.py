"""Survey of a deployed board: a POSIX sh script that only reads, and the parser of its answers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from profagent.boards.survey import MIB, BoardFacts, board_fields, read_answers, survey_script
from profagent.deploy.units import FOUND_INIT, every_service_file
from profagent.link.messages import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from profagent.boards.layout import Layout
    from profagent.ssh.remote import Remote


async def survey_installed(remote: Remote, layout: Layout) -> InstalledFacts:
    """Return the facts of the board and its deployment; the private key is not read.

    Raises UnreachableError, ProfagentError.
    """
    readable = (path for path in layout.files if not path.endswith(".key"))
    script = installed_script(layout, (*readable, f"{layout.roots_d}/*.conf", *every_service_file(layout)))
    return read_installed((await remote.must("sh -s", script.encode())).stdout.decode("utf-8", "replace"))


_SCRIPT = """say kernel "$(uname -r)"
say model "$(tr -d '\\000' 2>/dev/null </proc/device-tree/model)"
say user "$(id -un 2>/dev/null)"
say uid "$(ls -ldn "/proc/$$" | { read -r mode count uid rest; echo "$uid"; })"
say clock "$(date +%s)"
for file in /etc/os-release /usr/lib/os-release; do
    [ ! -r "$file" ] || { say system "$(sed -n 's/^PRETTY_NAME=//p' "$file" | tr -d '"')"; break; }
done
for file in /etc/param/ohos.para /system/etc/param/ohos.para; do
    [ ! -e "$file" ] || say system OpenHarmony
done
for each in busybox toybox; do
    case $(readlink -f "$(command -v ls)") in */$each) say tools $each ;; esac
done
say init "$(init)"
say systemd "$(systemctl --version 2>/dev/null | sed -n '1s/[^0-9]*\\([0-9]*\\).*/\\1/p')"
say kept "$(readlink "$PREFIX/current")"
say before "$(readlink "$PREFIX/previous")"
say versions "$(ls "$PREFIX/versions" 2>/dev/null | tr '\\n' ' ')"
[ ! -s "$KEY" ] || say key yes
[ ! -e "$TRIAL" ] || say trial yes
[ ! -w "$place" ] || say writable yes
say machine_id "$(cat /etc/machine-id 2>/dev/null)"
say serial "$(tr -d '\\000 ' 2>/dev/null </proc/device-tree/serial-number)"
say macs "$(for each in /sys/class/net/*; do
    [ -e "$each/device" ] || continue
    case $(readlink -f "$each/device") in */usb*) continue ;; esac
    [ "$(cat "$each/addr_assign_type" 2>/dev/null)" != 0 ] || cat "$each/address"
done | tr '\\n' ' ')"
[ ! -e /dev/svp_npu ] || say npu svp_npu
if [ -e /dev/pqp ] || [ -d /opt/lib/npu ]; then say other_npu pqp; fi
for file in $FILES; do
    [ -f "$file" ] && [ -r "$file" ] || continue
    say file "$file"
    { cat "$file"; echo; } | sed 's/^/|/'
done
"""
# The bit of a MAC address's first byte that marks it as locally administered.
_MADE_UP = 2
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class InstalledFacts(BoardFacts):
    """Facts of a board and its deployment; empty, None or 0 means that the fact could not be determined."""

    kernel: str
    model: str
    system: str
    """PRETTY_NAME of /etc/os-release, or OpenHarmony."""
    tools: str
    """busybox or toybox; empty for other tools."""
    user: str
    uid: int
    clock: datetime | None
    init: str
    """systemd, initd or none."""
    systemd: int
    is_writable: bool
    npu: tuple[str, ...]
    current: str
    previous: str
    versions: tuple[str, ...]
    marks: tuple[str, ...]
    """Marks, KIND:VALUE, by which `board.recognised` identifies the machine."""
    has_key: bool
    is_on_trial: bool
    """True if a deployment was neither confirmed nor undone."""
    files: Mapping[str, str] = field(repr=False)
    """Texts of the requested files that exist, by path."""


def installed_script(layout: Layout, files: Iterable[str]) -> str:
    """Return the survey script, which also prints the contents of `files`; these may be shell patterns."""
    given = {"KEY": f"{layout.keys}/board.key", "TRIAL": layout.trial, "FILES": " ".join(files)}
    assigned = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given.items())
    return f"{survey_script(layout.prefix)}{assigned}init() {{ {FOUND_INIT}; }}\n{_SCRIPT}"


def read_installed(output: str) -> InstalledFacts:
    """Return the facts that the script printed. Raises ProfagentError if they cannot be parsed."""
    return read_answers(output, _facts)


def _facts(said: Mapping[str, str], files: Mapping[str, str]) -> InstalledFacts:
    return InstalledFacts(
        **board_fields(said),
        kernel=said["kernel"],
        model=said["model"],
        system=said.get("system", ""),
        tools=said.get("tools", ""),
        user=said["user"] or said["uid"],
        uid=int(said["uid"]),
        clock=datetime.fromtimestamp(int(said["clock"]), UTC) if said["clock"].isdigit() else None,
        init=said["init"],
        systemd=int(said.get("systemd") or 0),
        is_writable="writable" in said,
        npu=tuple(said[key] for key in ("npu", "other_npu") if key in said),
        current=said["kept"].rpartition("/")[2],
        previous=said["before"].rpartition("/")[2],
        versions=tuple(said["versions"].split()),
        marks=tuple(_marks(said)),
        has_key="key" in said,
        is_on_trial="trial" in said,
        files=files,
    )


def _marks(said: Mapping[str, str]) -> Iterator[str]:
    # A locally administered MAC address was assigned by software, perhaps at this boot, and identifies no hardware.
    yield from (f"mac:{mac}" for mac in said.get("macs", "").lower().split() if not int(mac[:2], 16) & _MADE_UP)
    if said.get("serial"):
        yield f"serial:{said['serial']}"
    if said.get("machine_id"):
        # machine-id(5) asks that the id itself is not disclosed, so only its digest leaves the board.
        yield f"machine-id:{sha256(said['machine_id'].encode()).hexdigest()[:_DIGITS]}"


# The survey reads the board's clock in whole seconds (`date +%s`), and its answer takes time to arrive.
CLOCK_RESOLUTION_S = 2


def fact_lines(facts: InstalledFacts, now: datetime) -> Iterator[str]:
    """Yield lines that describe the board to people; `now` is the host's time."""
    model = f", {facts.model}" if facts.model else ""
    yield f"board    {facts.hostname}{model}: {facts.machine}, Linux {facts.kernel}, {facts.libc or 'libc N/A'}"
    tools = f", with the programs of {facts.tools}" if facts.tools else ""
    yield f"system   {facts.system or 'N/A'}{tools}"
    too_old = f"; Python {facts.old_python} is too old" if facts.old_python else ""
    python = (
        f"no Python 3.9 or later{too_old}"
        if facts.python is None
        else f"Python {facts.python.shown} ({facts.python.path})"
    )
    yield f"python   {python}{', without ' + ', '.join(facts.lacks) if facts.lacks else ''}"
    version = f" {facts.systemd}" if facts.init == "systemd" and facts.systemd else ""
    yield f"init     {facts.init}{version}; logged in as {facts.user}"
    free = "N/A" if facts.free_bytes is None else f"{facts.free_bytes / MIB:.0f} MiB free"
    yield f"disk     {facts.place}: {free}{'' if facts.is_writable else ', cannot be written to'}"
    yield f"clock    {_clock(facts.clock, now)}"
    other = "another stack (pqp), which does not profile with svp_acl"
    found = [{"svp_npu": "/dev/svp_npu", "pqp": other}[each] for each in facts.npu]
    yield f"npu      {', and '.join(found) or 'none is loaded: no /dev/svp_npu'}"


def _clock(clock: datetime | None, now: datetime) -> str:
    if clock is None:
        return "N/A"
    shown = f"{clock:%Y-%m-%d %H:%M} UTC"
    if clock < EARLIEST:
        return f"{shown}: never set. Certificates hold since 1970, so it works; times will be odd"
    ahead_s = round((clock - now).total_seconds())
    if abs(ahead_s) <= CLOCK_RESOLUTION_S:
        return f"{shown}, as this host's to within {CLOCK_RESOLUTION_S} s"
    return f"{shown}, {ahead_s:+d} s from this host's"
