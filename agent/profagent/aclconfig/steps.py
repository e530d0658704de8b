"""Shell commands about an acl.json on a board, for a POSIX sh with what BusyBox has."""

from __future__ import annotations

import shlex

__all__ = ["MISSING", "directory_state", "read_file", "write_file"]

# The exit status that says that there is no such file.
MISSING = 3


def read_file(path: str) -> str:
    """Prints the file; exit status MISSING where there is none."""
    name = shlex.quote(path)
    return f"[ -e {name} ] || exit {MISSING}; cat {name}"


def write_file(path: str) -> str:
    """Writes standard input into the file, whole or not at all: owner and mode stay, and a link leads on to it."""
    return (
        f"target=$(readlink -f {shlex.quote(path)}) && part=$target.part"
        ' && { [ ! -e "$target" ] || cp -p "$target" "$part"; } && { cat >"$part" && mv -f "$part" "$target"; }'
        ' || { rm -f "$part"; exit 1; }'
    )


def directory_state(path: str) -> str:
    """Prints `directory`, `not a directory` or `missing`."""
    name = shlex.quote(path)
    return (
        f"if [ -d {name} ]; then echo directory; elif [ -e {name} ]; then echo not a directory; else echo missing; fi"
    )
