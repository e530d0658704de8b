"""What a board is: a POSIX sh script that looks and writes nothing, and what it has found."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from profagent.deploy.daemon_tree import PROBE, BoardPython, read_probe
from profagent.deploy.units import FOUND_INIT, every_service_file
from profagent.errors import ProfagentError
from profagent.link.messages import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from profagent.deploy.units import Layout
    from profagent.ssh.remote import Remote


async def survey(remote: Remote, layout: Layout) -> BoardFacts:
    """What the board is, and what was deployed there; its key stays there. Raises UnreachableError, ProfagentError."""
    readable = (path for path in layout.files if not path.endswith(".key"))
    script = survey_script(layout, (*readable, f"{layout.roots_d}/*.conf", *every_service_file(layout)))
    return read_survey((await remote.must("sh -s", script.encode())).stdout.decode("utf-8", "replace"))


# What the daemon imports and a Python made for a small board may lack, then what the library of gRPC is linked to.
_LACKS = """import importlib
for name in "asyncio ctypes socket ssl zlib".split():
    try:
        importlib.import_module(name)
    except ImportError:
        print(name)
        if name == "ctypes":
            raise SystemExit
import ctypes
try:
    ctypes.CDLL("libstdc++.so.6")
except OSError:
    print("libstdc++.so.6")
"""
_SCRIPT = """say() { printf '%s=%s\\n' "$1" "$2"; }
say machine "$(uname -m)"
say kernel "$(uname -r)"
say hostname "$(uname -n)"
say model "$(tr -d '\\000' 2>/dev/null </proc/device-tree/model)"
say user "$(id -un 2>/dev/null)"
say uid "$(ls -ldn "/proc/$$" | { read -r mode count uid rest; echo "$uid"; })"
say clock "$(date +%s)"
libc=$(ldd --version 2>&1 | grep -o 'musl' | head -n 1)
for file in /lib/ld-musl-*.so.1 /lib/ld*-uClibc.so.*; do
    [ ! -e "$file" ] || case $file in *musl*) libc=musl ;; *) libc=uClibc ;; esac
done
for file in /lib/libc.so.6 /lib64/libc.so.6 /lib/*-linux-gnu*/libc.so.6; do
    [ -e "$file" ] || continue
    libc="glibc $("$file" 2>/dev/null | sed -n '1s/.*version \\([0-9.]*[0-9]\\).*/\\1/p')"
    break
done
say libc "$libc"
for file in /etc/os-release /usr/lib/os-release; do
    [ ! -r "$file" ] || { say system "$(sed -n 's/^PRETTY_NAME=//p' "$file" | tr -d '"')"; break; }
done
for file in /etc/param/ohos.para /system/etc/param/ohos.para; do
    [ ! -e "$file" ] || say system OpenHarmony
done
for each in busybox toybox; do
    case $(readlink -f "$(command -v ls)") in */$each) say tools $each ;; esac
done
python=$(probe)
say python "$python"
[ -n "$python" ] || say old_python "$(python3 -V 2>&1 | sed -n 's/^Python \\([0-9.]*\\).*/\\1/p')"
if [ -n "$python" ]; then
    say lacks "$("$(printf '%s' "$python" | cut -f 2)" -I -c "$LACKS" 2>/dev/null | tr '\\n' ' ')"
fi
say init "$(init)"
say systemd "$(systemctl --version 2>/dev/null | sed -n '1s/[^0-9]*\\([0-9]*\\).*/\\1/p')"
say kept "$(readlink "$PREFIX/current")"
say before "$(readlink "$PREFIX/previous")"
say versions "$(ls "$PREFIX/versions" 2>/dev/null | tr '\\n' ' ')"
[ ! -s "$KEY" ] || say key yes
[ ! -e "$TRIAL" ] || say trial yes
place=$PREFIX
while [ ! -d "$place" ]; do place=$(dirname "$place"); done
say place "$place"
[ ! -w "$place" ] || say writable yes
say free_kib "$(df -Pk "$place" 2>/dev/null | tail -n 1 | sed -n 's/.* \\([0-9][0-9]*\\)  *[0-9][0-9]*% .*/\\1/p')"
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
_MADE_UP = 2
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """A board as it was found. Empty, None or 0 is what could not be told."""

    machine: str
    kernel: str
    hostname: str
    model: str
    system: str
    """What /etc/os-release calls it, or OpenHarmony."""
    tools: str
    """busybox or toybox; empty: others."""
    user: str
    uid: int
    clock: datetime | None
    libc: str
    python: BoardPython | None
    old_python: str
    """The version of a Python that is too old."""
    lacks: tuple[str, ...]
    """What that Python does not have and the daemon needs."""
    init: str
    """systemd, initd or none."""
    systemd: int
    place: str
    """The nearest directory that there is, of the prefix."""
    is_writable: bool
    free_bytes: int | None
    npu: tuple[str, ...]
    current: str
    previous: str
    versions: tuple[str, ...]
    marks: tuple[str, ...]
    """By what its machine is known again (`board.recognised`)."""
    has_key: bool
    is_on_trial: bool
    """Whether a deployment was neither confirmed nor taken back."""
    files: Mapping[str, str] = field(repr=False)
    """The texts of the files that were asked about, by path, of those that there are."""


def survey_script(layout: Layout, files: Iterable[str]) -> str:
    """The script; it tells the contents of `files`, too, of which some may be patterns."""
    given = {
        "PREFIX": layout.prefix,
        "KEY": f"{layout.keys}/board.key",
        "TRIAL": layout.trial,
        "LACKS": _LACKS,
        "FILES": " ".join(files),
    }
    assigned = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given.items())
    return f"{assigned}probe() (\n{PROBE})\ninit() {{ {FOUND_INIT}; }}\n{_SCRIPT}"


def read_survey(output: str) -> BoardFacts:
    """What the script has printed. Raises ProfagentError when that makes no sense."""
    said: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.split("\n"):
        if line.startswith("|"):
            # Before the first file it is a login banner's.
            lines.append(line[1:])
            continue
        key, _, value = line.partition("=")
        said[key] = value
        if key == "file":
            lines = files[value] = []
    try:
        return _facts(said, {path: "\n".join(text) for path, text in files.items()})
    except (KeyError, ValueError) as error:
        raise ProfagentError(
            f"the board's shell does not answer as expected: {error}",
            hint="log in and see what it prints by itself (.profile, .bashrc)",
        ) from error


def _facts(said: Mapping[str, str], files: Mapping[str, str]) -> BoardFacts:
    return BoardFacts(
        machine=said["machine"],
        kernel=said["kernel"],
        hostname=said["hostname"],
        model=said["model"],
        system=said.get("system", ""),
        tools=said.get("tools", ""),
        user=said["user"] or said["uid"],
        uid=int(said["uid"]),
        clock=datetime.fromtimestamp(int(said["clock"]), UTC) if said["clock"].isdigit() else None,
        libc=said["libc"].strip(),
        python=read_probe(said["python"]) if said["python"] else None,
        old_python=said.get("old_python", ""),
        lacks=tuple(said.get("lacks", "").split()),
        init=said["init"],
        systemd=int(said.get("systemd") or 0),
        place=said["place"],
        is_writable="writable" in said,
        free_bytes=int(said["free_kib"]) * 1024 if said["free_kib"].isdigit() else None,
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
    # A MAC address whose second digit has this bit was made up by somebody, maybe at this boot.
    yield from (f"mac:{mac}" for mac in said.get("macs", "").lower().split() if not int(mac[:2], 16) & _MADE_UP)
    if said.get("serial"):
        yield f"serial:{said['serial']}"
    if said.get("machine_id"):
        # It is not to be told around as it is (machine-id(5)).
        yield f"machine-id:{sha256(said['machine_id'].encode()).hexdigest()[:_DIGITS]}"


# Besides a version's own files: links, settings, the room that a file system takes for itself.
_ROOM_BYTES = 2 << 20


def check_room(facts: BoardFacts, size_bytes: int) -> None:
    """Raises ProfagentError where the prefix has no room for so much."""
    needed = _ROOM_BYTES + size_bytes
    if facts.free_bytes is not None and facts.free_bytes < needed:
        raise ProfagentError(
            f"{facts.place} on {facts.hostname} has {facts.free_bytes / _MIB:.1f} MiB free, and"
            f" {needed / _MIB:.1f} MiB are needed",
            hint="make room there, or deploy to another file system: `profagent deploy --prefix DIR`",
        )


# A board tells its time in whole seconds.
CLOCK_RESOLUTION_S = 2
_MIB = 1 << 20


def fact_lines(facts: BoardFacts, now: datetime) -> Iterator[str]:
    """What the board is, for people, a line each; `now` is the host's time."""
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
    free = "N/A" if facts.free_bytes is None else f"{facts.free_bytes / _MIB:.0f} MiB free"
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
