"""Who works on a board: a directory there that one host has at a time, for as long as it is heard."""

from __future__ import annotations

import shlex

__all__ = ["LOST_S", "heard", "held", "owned"]

# A host that was not heard for so long has lost its link.
LOST_S = 60
# A beat that is ahead of the board's uptime is from before a reboot.
_HEARD = """uptime_s() { cut -d . -f 1 /proc/uptime; }
# Whether the host that has the lock was heard lately.
heard() {
    beat=
    read -r beat 2>/dev/null <LOCK/beat
    case $beat in '' | *[!0-9]*) return 1 ;; esac
    silent_s=$(($(uptime_s) - beat))
    [ "$silent_s" -ge 0 ] && [ "$silent_s" -le LOST_S ]
}
"""
_HELD = """owner=OWNER
beat() { uptime_s >LOCK/beat.new && mv -f LOCK/beat.new LOCK/beat; }
release() {
    [ "$(cat LOCK/owner 2>/dev/null)" != "$owner" ] || rm -rf LOCK
    [ PARENT = /var/run ] || rmdir PARENT 2>/dev/null
}
mkdir -p PARENT || exit
if ! mkdir LOCK 2>/dev/null; then
    # Who has just taken it is heard in a moment.
    heard || sleep 2
    if heard; then
        echo "busy $(cut -d ' ' -f 1 LOCK/owner)"
        exit
    fi
    rm -rf LOCK
    mkdir LOCK || exit
fi
if echo "$owner" >LOCK/owner && beat; then
    echo held
    while read -r word && [ "$(cat LOCK/owner)" = "$owner" ]; do beat; done
fi
release
"""


def heard(lock: str) -> str:
    """A shell function of that name."""
    return _HEARD.replace("LOCK", lock).replace("LOST_S", str(LOST_S))


def held(lock: str, owner: str) -> str:
    """Takes the lock and says `held`, or `busy` and its owner's first word; keeps it while it is given lines."""
    script = _HELD.replace("OWNER", shlex.quote(owner))
    return heard(lock) + script.replace("LOCK", lock).replace("PARENT", lock.rpartition("/")[0])


def owned(lock: str, owner: str) -> str:
    """A condition: the lock is this owner's."""
    return f'[ "$(cat {lock}/owner 2>/dev/null)" = {shlex.quote(owner)} ]'
