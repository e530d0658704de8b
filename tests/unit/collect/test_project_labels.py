"""A session is labelled with what its project was."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from profagent.collect.project import project_labels
from profagent.store.sessions import labels_of


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_revision_and_digests_are_kept(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "main").write_bytes(b"program")
    (tmp_path / "my model.om").write_bytes(b"model")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    revision = git(tmp_path, "rev-parse", "HEAD")[:12]
    labels = await project_labels(tmp_path, "out/main")
    assert labels == {
        "git": revision,
        "main": hashlib.sha256(b"program").hexdigest()[:16],
        "model.my_model": hashlib.sha256(b"model").hexdigest()[:16],
    }
    assert labels_of(f"{key}={value}" for key, value in labels.items()) == labels
    (tmp_path / "out" / "main").write_bytes(b"another")
    assert (await project_labels(tmp_path, "out/main"))["git"] == f"{revision}-dirty"


async def test_a_program_of_the_board_is_labelled_with_what_was_read_there() -> None:
    assert await project_labels(None, "/opt/main", "0123456789abcdef" * 4) == {"main": "0123456789abcdef"}
    assert await project_labels(None, "/opt/main") == {}
