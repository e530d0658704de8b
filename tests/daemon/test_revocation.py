"""The revocation list: what it says, and what becomes of one that is changed, damaged or gone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from profagentd.access import Revocations
from profagentd.errors import DaemonError

ONE, OTHER = "1" * 64, "ab" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "revoked.txt"


def test_a_line_is_a_fingerprint_and_a_remark(path: Path) -> None:
    path.write_text(f"# revoked\n\n{ONE}  # board, 2026-11-21\n{':'.join(['AB'] * 32)}\n")
    revocations = Revocations(str(path))
    assert revocations.has(ONE)
    assert revocations.has(OTHER)
    assert not revocations.has("2" * 64)
    assert not revocations.has("")


def test_a_list_that_is_gone_revokes_what_it_did(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text(ONE)
    revocations = Revocations(str(path))
    path.unlink()
    with caplog.at_level(logging.ERROR):
        assert all(revocations.has(ONE) for _ in range(5))
    assert len(caplog.records) == 1
    assert "what was revoked stays so" in caplog.text
    path.write_text(OTHER)
    assert revocations.has(OTHER)
    assert not revocations.has(ONE)


def test_a_wrong_line_frees_nobody_and_hides_nobody(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text(ONE)
    revocations = Revocations(str(path))
    path.write_text(f"{ONE[:-1]}\n{OTHER}\n")
    assert revocations.has(OTHER)
    assert revocations.has(ONE)
    assert "is no SHA-256 fingerprint" in caplog.text


@pytest.mark.parametrize("content", [None, b"", b"\n", b"no fingerprint", b"\xff\xfe", b"1" * 63])
def test_a_daemon_does_not_start_with_a_list_that_says_nothing(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DaemonError, match=r"revoked\.txt") as error:
        Revocations(str(path))
    assert "tls_revoked" in error.value.hint
