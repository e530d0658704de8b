"""Where things of a run stand on a board."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from profagent.collect.project_steps import OWN
from profagent.errors import UsageError

__all__ = ["Place", "plain_name"]

# The manual's constraints of use: paths of profiling have letters, digits and underscores.
_ODD = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A program and its surroundings; `directory` is the project's, as the board's kernel calls it."""

    directory: str
    main: str
    """An absolute path."""

    @classmethod
    def of(cls, directory: str, main: str) -> Place:
        """`main` is relative to the directory, or absolute."""
        path = posixpath.normpath(posixpath.join(directory, main))
        if not main.startswith("/") and not path.startswith(f"{directory}/"):
            raise UsageError(f"-m {main} leads out of the project", hint="name it relative to --project, or absolutely")
        return cls(directory, path)

    @property
    def main_directory(self) -> str:
        """Where the program is started."""
        return posixpath.dirname(self.main)

    @property
    def output(self) -> str:
        """Where JOBs are made."""
        return f"{self.directory}/profiling"

    @property
    def own(self) -> str:
        """What is ours there."""
        return f"{self.directory}/{OWN}"

    @property
    def run(self) -> str:
        """The files of the run that goes on."""
        return f"{self.own}/run"

    @property
    def acl_candidates(self) -> tuple[str, ...]:
        """Where programs of the SDK have their acl.json."""
        above = posixpath.dirname(self.main_directory)
        folders = (self.main_directory, above, self.directory)
        return tuple(dict.fromkeys(f"{each}/{name}" for each in folders for name in ("acl.json", "src/acl.json")))

    def acl_json(self, given: str) -> str:
        """The file that is named relative to the project, or absolutely."""
        return posixpath.normpath(posixpath.join(self.directory, given))


def plain_name(text: str) -> str:
    """A directory's name as the manual allows it."""
    return _ODD.sub("_", text).strip("_") or "project"
