"""Standalone Pythons: their list is the real one, the archives come from a server of the tests."""

from __future__ import annotations

import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from profagent.deploy.bundle.cli import fetch_standalone, standalone_link, unpack_archive
from profagent.errors import ProfagentError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serves what is in tmp_path / "served"."""
    (tmp_path / "served").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served"))
    ) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


# Of pbs-installer, which still runs on Pythons without another way.
@pytest.mark.filterwarnings("ignore:open_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_the_list_has_an_archive_that_can_be_unpacked_for_each_machine(machine: str) -> None:
    address, digest = standalone_link(machine)
    assert machine in address
    assert "linux-gnu" in address
    assert address.endswith(".tar.gz")
    assert len(bytes.fromhex(digest)) == 32


def test_what_has_its_digest_is_taken_and_else_refused(server: str, tmp_path: Path) -> None:
    (tmp_path / "served/python.tar.gz").write_bytes(b"archive")
    address, target = f"{server}/python.tar.gz", tmp_path / "here"
    told: list[tuple[int, int]] = []
    digest = hashlib.sha256(b"archive").hexdigest()
    fetch_standalone(address, digest, target, lambda done, total: told.append((done, total)))
    assert told == [(7, 7)]
    assert target.read_bytes() == b"archive"
    with pytest.raises(ProfagentError, match="SHA-256"):
        fetch_standalone(address, "00" * 32, target)
    with pytest.raises(ProfagentError, match="404") as refused:
        fetch_standalone(f"{server}/none.tar.gz", "00" * 32, target)
    assert "--from" in refused.value.hint


def test_an_archive_is_unpacked_and_nothing_outside(tmp_path: Path) -> None:
    archive = tmp_path / "python.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.addfile(tarfile.TarInfo("python/bin/python3.11"), io.BytesIO())
    unpack_archive(archive, tmp_path / "there")
    assert (tmp_path / "there/python/bin/python3.11").exists()
    with tarfile.open(archive, "w:gz") as opened:
        opened.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    with pytest.raises(ProfagentError, match="outside"):
        unpack_archive(archive, tmp_path / "there")
    assert not (tmp_path / "outside").exists()
