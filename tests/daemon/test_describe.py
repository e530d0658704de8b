"""Who the board is, by its files."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from profagentd.examine import identify

FILES = {
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "proc/sys/kernel/random/boot_id": "c3b1c1f4-0000-4000-8000-000000000001\n",
    "proc/device-tree/model": "Vendor Board SS928\0",
    "proc/umap/svp_npu": "[SVP_NPU] Version:  [SS928V100 B030 Release], Build Time[Jan 1 2025]\n\n---module---\n",
}


@pytest.fixture
def board(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_board_tells_what_its_files_tell(board: Path) -> None:
    identity = identify(filesystem=board)
    assert identity.identity == "0123456789abcdef0123456789abcdef"
    assert identity.boot_id == "c3b1c1f4-0000-4000-8000-000000000001"
    assert identity.model == "Vendor Board SS928"
    assert identity.sdk_version == "[SVP_NPU] Version:  [SS928V100 B030 Release], Build Time[Jan 1 2025]"
    assert identity.hostname == socket.gethostname()


def test_a_deployed_identity_comes_first(board: Path) -> None:
    (board / "etc/profagent").mkdir()
    (board / "etc/profagent/board-id").write_text("5f0c8f5e-1111-4222-8333-444444444444\n")
    identity = identify(filesystem=board)
    assert identity.identity == "5f0c8f5e-1111-4222-8333-444444444444"
