"""A made-up board: the files of its /proc and /dev below a directory of the test's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profagentd.sources.state import DEVICE
from tests.daemon.daemon_process import Daemon, environment, serving

UMAP_SAMPLE = Path(__file__).parents[1] / "data" / "umap" / "svp_npu.txt"
HZ = os.sysconf("SC_CLK_TCK")
MOUNTS = (
    "22 1 179:2 / / rw - ext4 /dev/root rw\n",
    "40 22 0:40 / /root/app/profiling rw - nfs 192.0.2.9:/home/dev/profiling rw\n",
    "41 22 0:41 / /mnt/with\\040space rw - nfs4 192.0.2.9:/other rw\n",
)


def make_board(root: Path) -> Path:
    """A board with the NPU's driver, no program, and two NFS mounts."""
    write(root / "dev/svp_npu", "")
    write(root / "proc/modules", "ot_svp_npu 200704 0 - Live 0x0\next4 1 0 - Live 0x0\n")
    write(root / "proc/stat", "cpu 1 2 3\n")
    write(root / "proc/umap/svp_npu", UMAP_SAMPLE.read_text("utf-8"))
    write(root / "proc/umap/sys", "[SYS] Version: [SS928]\n")
    write(root / "proc/self/mountinfo", "".join(MOUNTS))
    write(root / "proc/self/status", "Name:\tprofagentd\nCapEff:\t0000000000000004\n")
    write(root / "proc/self/fdinfo/7", "pos:\t0\ninotify wd:1 ino:2\ninotify wd:2 ino:3\n")
    for name, limit in (("max_user_watches", 8192), ("max_user_instances", 128), ("max_queued_events", 16384)):
        write(root / "proc/sys/fs/inotify" / name, f"{limit}\n")
    return root


def add_process(root: Path, pid: int, name: str = "main", umask: str = "0022", *, has_npu: bool = True) -> Path:
    """A program that runs on the board, since ten seconds after its boot."""
    process = root / "proc" / str(pid)
    fields = ["S", *["0"] * 18, str(10 * HZ), "0", "0"]
    write(process / "stat", f"{pid} ({name}) {' '.join(fields)}\n")
    write(process / "status", f"Name:\t{name}\nUmask:\t{umask}\nUid:\t0\t0\t0\t0\n")
    (process / "fd").mkdir()
    (process / "fd/3").symlink_to(DEVICE if has_npu else "/dev/null")
    return process


def write(path: Path, text: str) -> None:
    """A file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


@contextmanager
def served(board: Path, root: Path, *arguments: str | Path, listen: str = "127.0.0.1:0") -> Iterator[Daemon]:
    """A daemon of a made-up board."""
    started = [sys.executable, "-m", "tests.daemon.board_daemon", board, "--listen", listen, "--root", root]
    started += ["--state", board / "state", "--spools", "", *arguments]
    with serving([*map(str, started)], environment("protos", "daemon", ".")) as daemon:
        yield daemon
