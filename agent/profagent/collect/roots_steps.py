"""Having a daemon that is installed on a board serve one more directory, for a while."""

from __future__ import annotations

import shlex

__all__ = ["registered", "unregistered"]

_NAME = "profagent-collect.conf"


def registered(prefix: str, roots_d: str, output: str) -> str:
    """Names the directory in roots.d and has the daemon read that; exit status 3 where one may not, or none runs."""
    file, text = f"{roots_d}/{_NAME}", f"# of a `profagent collect`, which takes it away at its end\n{output}"
    own, usual = f"{prefix}/profagentd.init", "/etc/init.d/profagentd"
    return f"""[ -d {roots_d} ] && [ -w {roots_d} ] || exit 3
echo {shlex.quote(text)} >{file} || exit 3
if [ -x {own} ]; then {own} reload
elif [ -d /run/systemd/system ]; then systemctl reload profagentd
elif [ -x {usual} ]; then {usual} reload
else false
fi >/dev/null 2>&1 && exit
rm -f {file}
exit 3"""


def unregistered(roots_d: str) -> str:
    """Takes the name away; the daemon serves the directory until it is started again."""
    return f"rm -f {roots_d}/{_NAME}"
