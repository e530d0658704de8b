"""A deployment on trial: what it replaced is kept on the board, and comes back unless the host is content in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.deploy.lock import heard, owned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.deploy.layout import Layout
    from profagent.deploy.units import Service

__all__ = ["Switch", "begun", "confirmed", "kept", "script", "taken_back"]

_SCRIPT = """# A deployment on trial: what was there before comes back unless the host, which has the lock, is content,
# and when that host is not heard any more. `sh run back` does it at once.
{heard}
# A link is renamed over the one that stands there; where `mv` cannot be told to (-T), it is made anew.
point() {{ # LINK VERSION
    rm -f "$1.new"
    [ -n "$2" ] || {{ rm -f "$1"; return; }}
    ln -s "versions/$2" "$1.new" && mv -fT "$1.new" "$1" 2>/dev/null && return
    rm -f "$1.new"
    ln -sfn "versions/$2" "$1"
}}
put_back() {{ # NUMBER PATH
    if [ -e "$1" ]; then cp -p "$1" "$2.new" && mv -f "$2.new" "$2"; else rm -f "$2"; fi
}}
forward() {{
{forward}
}}
back() {{
{back}
}}
main() {{
    cd {trial} || exit
    if [ "$1" = back ]; then
        mkdir decided 2>/dev/null
    else
        trap : HUP
        forward >said 2>&1
        echo "$?" >status.new && mv status.new status
        while [ -e status ] && [ ! -e refused ] && heard && {owned}; do
            [ ! -e decided ] && [ -d {trial} ] || exit 0
            sleep 1
        done
        # One that was confirmed may be gone in part.
        [ -e status ] && mkdir {trial}/decided 2>/dev/null || exit 0
    fi
    back >>said 2>&1
    sync
    rm -rf {trial}
}}
main "$@"
exit
"""


@dataclass(frozen=True, slots=True)
class Switch:
    """What changes at once: files that were written as PATH.new, files that go, the versions that links lead to."""

    written: Sequence[str]
    dropped: Sequence[str]
    current: str
    previous: str
    old_current: str
    old_previous: str
    had_service: bool
    """Whether something was started before, and is to be again."""
    stops_first: bool
    """Whether that is of another prefix, of which the new service knows nothing."""

    @property
    def paths(self) -> list[str]:
        """All files that it changes."""
        return [*self.written, *self.dropped]


def kept(layout: Layout, switch: Switch) -> str:
    """Copies of the files as they are, by their number, next to which the script is written."""
    part = f"{layout.trial}.part"
    copies = (f"{{ [ ! -e {path} ] || cp -p {path} {part}/{number}; }}" for number, path in enumerate(switch.paths))
    return " && ".join((f"rm -rf {part} && mkdir -m 700 {part}", *copies))


def script(layout: Layout, service: Service, switch: Switch, owner: str) -> str:
    """`run` of the trial's directory: goes forward, then waits for the host's word, and leads back without it."""
    forward = [
        *(f"mv -f {path}.new {path}" for path in switch.written),
        *(f"rm -f {path}" for path in switch.dropped),
        f"(cd {layout.prefix} && point previous '{switch.previous}' && point current '{switch.current}')",
        f"( {service.enable}\n)",
        f"( {service.restart}\n)",
    ]
    back = [
        f"( {service.stop}\n)",
        *(f"put_back {number} {path}" for number, path in enumerate(switch.paths)),
        f"(cd {layout.prefix} && point current '{switch.old_current}' && point previous '{switch.old_previous}')",
        f"( {service.enable}\n) && ( {service.restart}\n)" if switch.had_service else service.forget,
    ]
    stopped = f"( {service.stop}\n)\n" if switch.stops_first else ""
    return _SCRIPT.format(
        heard=heard(layout.lock(service.init)),
        owned=owned(layout.lock(service.init), owner),
        trial=layout.trial,
        forward=stopped + " &&\n".join(forward),
        back="\n".join(back),
    )


def begun(layout: Layout, init: str, owner: str) -> str:
    """Begins the trial, by a process that no link ends; ends itself when the service was started, or with why not."""
    trial = layout.trial
    return f"""{owned(layout.lock(init), owner)} || {{ echo 'another host has taken over' >&2; exit 1; }}
mv {trial}.part {trial} && sync || exit
{{ sh {trial}/run; [ ! -d {trial} ] || [ -e {trial}/status ] || echo 1 >{trial}/status; }} </dev/null >/dev/null 2>&1 &
echo "$!" >{trial}/pid
while [ -d {trial} ] && [ ! -e {trial}/status ]; do sleep 1; done
cat {trial}/said >&2
exit "$(cat {trial}/status)"
"""


def confirmed(layout: Layout) -> str:
    """What is on trial stays; fails when it was taken back already."""
    trial = layout.trial
    # Who watches it must not find it undecided while it is removed piece by piece.
    return f"rm -rf {trial}.over && mkdir {trial}/decided && mv {trial} {trial}.over && rm -rf {trial}.over"


def taken_back(layout: Layout) -> str:
    """What is on trial goes, if there is anything: by the process that watches it, or where that is no more by this."""
    trial = layout.trial
    return f"""cd {trial} 2>/dev/null || exit 0
: >refused
pid=
read -r pid 2>/dev/null <pid
while [ -d {trial} ] && grep -q {trial}/run "/proc/$pid/cmdline" 2>/dev/null; do sleep 1; done
[ ! -e run ] || sh {trial}/run back </dev/null >/dev/null 2>&1
rm -rf {trial}
"""
