"""The shell commands of a deployment, for a POSIX sh with what BusyBox has."""

from __future__ import annotations

from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING

from profagent.deploy.daemon_tree import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from profagent.deploy.layout import Layout
    from profagent.deploy.units import Service

__all__ = [
    "VERSION",
    "checked_settings",
    "cleared_versions",
    "digest_check",
    "digest_list",
    "is_version",
    "lost_root",
    "made_directories",
    "named_roots",
    "part_of",
    "removed",
    "settled",
    "unstaged",
]

# The name of a version directory, for a shell and for fnmatch.
VERSION = f"*-{'[0-9a-f]' * 8}"


def made_directories(layout: Layout, service: Service) -> str:
    """The directories of a layout, and those of the service's files, of which it notes what was not there."""
    plain = f"mkdir -p {layout.versions} {layout.settings} {layout.roots_d}"
    others = " ".join(sorted({path.rpartition("/")[0] for path in service.files} - set(service.owned)))
    noted = f"[ -d $each ] || {{ mkdir -p $each && echo $each >>{layout.made}; }} || exit"
    return f"{plain} && mkdir -p -m 700 {layout.keys} {layout.state} && {{ for each in {others}; do {noted}; done; }}"


def part_of(layout: Layout, name: str) -> str:
    """Where a version is while it arrives."""
    return f"{layout.version(name)}.part"


def cleared_versions(layout: Layout, *kept: str) -> str:
    """Removes what interrupted deployments and older versions have left, and nothing else that is there."""
    cases = "|".join((*(each for each in kept if each), "-"))
    # Renamed first: an interrupted removal leaves what the next one knows.
    whole = f'[ ! -f "$each/{MANIFEST}" ] || {{ mv "$each" "$each.part" && rm -rf "$each.part"; }}'
    return (
        f"cd {layout.versions} && for each in *; do case $each in {cases}) ;;"
        f' {VERSION}.part) rm -rf "$each" ;; {VERSION}) {whole} ;; esac; done'
    )


def is_version(name: str) -> bool:
    """Whether what is among the versions may be one, whole or in part."""
    return fnmatchcase(name.removesuffix(".part"), VERSION)


def digest_check(directory: str) -> str:
    """Compares the files of a directory with `digest_list` on standard input, where the board can."""
    return (
        f"cd {directory} && if command -v sha256sum >/dev/null; then sha256sum -c - >/dev/null; else cat >/dev/null; fi"
    )


def digest_list(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """The lines of `sha256sum` for files by their path."""
    return "".join(f"{sha256(content).hexdigest()}  {path}\n" for path, (content, _) in files.items()).encode()


def checked_settings(layout: Layout, directory: str, config: str) -> str:
    """Has a version read settings, certificates and its own libraries."""
    return f"{directory}/bin/profagentd --config {config} --roots-d {layout.roots_d} --check-config"


def settled(layout: Layout, name: str) -> str:
    """A version that has arrived gets its name, in place of one that is damaged; before, it is on the disk."""
    return f"sync && rm -rf {layout.version(name)} && mv {part_of(layout, name)} {layout.version(name)}"


def unstaged(layout: Layout, service: Service) -> str:
    """Removes what was written to take the place of files, and did not."""
    paths = (*layout.files, *service.files)
    return f"rm -f {' '.join(f'{path}.new {path}.new.part' for path in paths)}"


def named_roots(files: Mapping[str, str], layout: Layout) -> tuple[str, ...]:
    """The roots that programs have named, of a board's files by path."""
    texts = [text for path, text in sorted(files.items()) if path.startswith(f"{layout.roots_d}/")]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return tuple(line for line in lines if line.startswith("/"))


def lost_root(layout: Layout, service: Service, roots: Iterable[str]) -> str | None:
    """The first of `roots` that `removed` would take away."""
    lost = (layout.versions, layout.settings, *_removed_paths(layout, service))
    return next((root for root in roots if any(f"{root}/".startswith(f"{each}/") for each in lost)), None)


def removed(layout: Layout, service: Service, kept: Collection[str] = ()) -> str:
    """Takes away all that a deployment has made but `kept`, and directories that are empty then."""
    run = f"{layout.prefix}/run"
    made = f"{{ while read -r each; do rmdir $each; done <{layout.made}; }} 2>/dev/null; rm -f {layout.made}"
    empty = f"rmdir {layout.versions} {run} {layout.settings} {layout.prefix} 2>/dev/null || :"
    paths = (path for path in _removed_paths(layout, service) if path not in kept)
    return (
        f"({cleared_versions(layout)}) 2>/dev/null; rm -f {run}/profagentd.pid {run}/profagentd.daemon.pid;"
        f" rm -rf {' '.join(paths)}; {service.forget}; {made}; {empty}"
    )


def _removed_paths(layout: Layout, service: Service) -> tuple[str, ...]:
    settings = (layout.config, f"{layout.config}.new", layout.board_id, layout.keys, layout.roots_d)
    more = (layout.current, layout.previous, f"{layout.settings}/default", layout.state)
    trial = (f"{layout.trial}.part", f"{layout.trial}.over")
    return (*service.files, *service.unwanted, *service.owned, *settings, *more, *trial)
