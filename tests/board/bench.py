"""A host and a board for `collect`: a project, what the command is run with, and where things land."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.board.collected import make_project
from tests.integration.host import Ended, profagent

if TYPE_CHECKING:
    from pathlib import Path

    from tests.board.sshd import Sshd

LEFT = {"main", "seen.json", "acl.json", "profiling", ".profagent"}


class Bench:
    """`remote` is the project's directory on the board."""

    def __init__(self, folder: Path, friend: Sshd, variables: dict[str, str]) -> None:
        self.friend = friend
        self.variables = variables
        self.project = make_project(folder / "app")
        self.output = folder / "out"
        self.workspace = folder / "ws"
        self.remote = folder / "board"
        self.board = friend.target

    def arguments(self, *more: str | Path) -> list[str | Path]:
        """The command line; after `--` the program's, three inferences at once unless they are given."""
        options = [*more]
        run = options[options.index("--") :] if "--" in options else ["--", "3", "0", "unload"]
        options = options[: options.index("--")] if "--" in options else options
        if not {"--config", "--board"} & {*options}:
            options += ["--board", self.board]
        if "-m" not in options:
            options += ["-m", "main"]
        where = ("--project", self.project, "--output", self.output, "--workspace", self.workspace)
        return ["collect", *where, "--remote-dir", self.remote, *options, *run]

    def collect(self, *more: str | Path) -> Ended:
        """Run it to its end."""
        return profagent(*self.arguments(*more), **self.variables)

    @property
    def jobs(self) -> list[Path]:
        """JOBs that have landed on the host."""
        return sorted(self.output.glob("JOB*"))

    @property
    def board_jobs(self) -> list[Path]:
        """JOBs on the board."""
        return sorted((self.remote / "profiling").glob("JOB*"))

    def is_tidy(self) -> bool:
        """The board is as it was, but for the project and JOBs."""
        acl_json = (self.remote / "acl.json").read_text()
        own = {path.name for path in (self.remote / ".profagent").iterdir()} - {"files", "state"}
        return acl_json == '{"other": "stays"}\n' and {path.name for path in self.remote.iterdir()} <= LEFT and not own
