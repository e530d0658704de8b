"""Shell commands about a project's copy on a board, for a POSIX sh with what BusyBox has. Names come by lines."""

from __future__ import annotations

import shlex

from profagent.collect.project import DIGESTS, Entry, Tree

__all__ = ["OWN", "digests", "listing", "manifest", "read_listing", "removal"]

# What is ours in a project's directory on a board; and below it the names that were put there.
OWN = ".profagent"
MANIFEST = f"{OWN}/files"
_KINDS = {"f": "file", "x": "file", "d": "directory", "l": "link"}


def manifest(directory: str) -> str:
    """Prints which program makes digests, and the names that an earlier upload has put there."""
    return (
        f"for tool in {' '.join(DIGESTS)} none; do command -v $tool >/dev/null && break; done; echo $tool;"
        f" cd {shlex.quote(directory)} 2>/dev/null || exit 0; [ ! -f {MANIFEST} ] || cat {MANIFEST}"
    )


def listing(directory: str) -> str:
    """Prints a line for each name: what there is under it."""
    return f"""cd {shlex.quote(directory)} 2>/dev/null || exit 0
while IFS= read -r name; do
    if [ -L "./$name" ]; then echo "l$(readlink "./$name" | head -n 1)"
    elif [ -d "./$name" ]; then echo d
    elif [ -x "./$name" ] && [ -f "./$name" ]; then echo x
    elif [ -f "./$name" ]; then echo f
    elif [ -e "./$name" ]; then echo o
    else echo -
    fi
done"""


def read_listing(names: list[str], lines: list[str]) -> Tree:
    """What the listing has printed of these names; without digests."""
    found: Tree = {}
    for name, line in zip(names, lines, strict=False):
        kind = _KINDS.get(line[:1], "other")
        if line != "-":
            found[name] = Entry(kind, line[1:] if kind == "link" else "", line == "x")
    return found


def digests(directory: str, tool: str) -> str:
    """Prints the digests of files; what cannot be read is left out."""
    return f"""cd {shlex.quote(directory)} || exit 0
if printf x | xargs -0 true 2>/dev/null; then sed 's|^|./|' | tr '\\n' '\\0' | xargs -0 {tool}
else while IFS= read -r name; do {tool} "./$name"; done
fi 2>/dev/null
:"""


def removal(directory: str) -> str:
    """Removes files, and directories with nothing else in them."""
    return f"""cd {shlex.quote(directory)} || exit 0
while IFS= read -r name; do
    if [ -d "./$name" ] && [ ! -L "./$name" ]; then rmdir "./$name" 2>/dev/null || :; else rm -f "./$name"; fi
done"""
