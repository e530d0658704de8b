"""An aarch64 board that qemu emulates in software, with a kernel of its own; its ports are on the host's loopback."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
# Leads to this machine, and does not look like a loopback address.
HOST = "0.0.0.0"
# A loaded machine takes its time to emulate another.
BOOT_S = 600.0
COMMAND_S = 600.0
_KERNEL = "console=ttyAMA0 root=/dev/vda rw quiet loglevel=3 mitigations=off random.trust_bootloader=on"


class Emulated:
    """A board that runs, with its user key and host key; root may log in."""

    def __init__(self, folder: Path, ssh_port: int, grpc_port: int) -> None:
        self.key = folder / "user"
        self.known_hosts = folder / "known_hosts"
        self.port = grpc_port
        self.address = f"{HOST}:{grpc_port}"
        self.target = f"ssh://root@{HOST}:{ssh_port}"
        host = (folder / "host.pub").read_text("ascii").split()[:2]
        self.known_hosts.write_text(f"[{HOST}]:{ssh_port} {' '.join(host)}\n", "ascii")

    def ssh(self, command: str, stdin: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run a shell command there."""
        options = [*("-F", "none", "-i", str(self.key)), f"-oUserKnownHostsFile={self.known_hosts}"]
        options += ["-oBatchMode=yes", "-oIdentitiesOnly=yes", "-oConnectTimeout=10"]
        with (stdin or Path("/dev/null")).open("rb") as given:
            arguments = ["ssh", *options, self.target, command]
            return subprocess.run(arguments, stdin=given, capture_output=True, timeout=COMMAND_S, check=False)

    def must(self, command: str, stdin: Path | None = None) -> str:
        """The same; its output, when it has not failed."""
        ran = self.ssh(command, stdin)
        assert ran.returncode == 0, (ran.stdout + ran.stderr).decode("utf-8", "replace")
        return ran.stdout.decode("utf-8", "replace").strip()


def make_image(folder: Path) -> None:
    """A user key, kernel, initrd and disk."""
    folder.mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "user"], check=True)
    command = [HERE / "make_image", folder, folder / "user.pub"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


@contextmanager
def booted(folder: Path) -> Iterator[Emulated]:
    """Boot what `make_image` has made there; the disk stays as it was. SSH answers when this is entered."""
    ssh_port, grpc_port = _free_ports()
    board = Emulated(folder, ssh_port, grpc_port)
    forwards = f"hostfwd=tcp:127.0.0.1:{ssh_port}-:22,hostfwd=tcp:127.0.0.1:{grpc_port}-:{grpc_port}"
    (kernel,) = (folder / "kernel/boot").glob("vmlinuz-*")
    machine = ["-M", "virt,gic-version=2", "-cpu", "cortex-a53", "-smp", "2", "-m", "1G"]
    devices: list[str | Path] = [
        "-accel",
        "tcg,thread=multi,tb-size=512",
        "-kernel",
        kernel,
        "-initrd",
        folder / "initrd.gz",
    ]
    devices += ["-append", _KERNEL, "-device", "virtio-blk-device,drive=d", "-device", "virtio-rng-device"]
    devices += ["-drive", f"if=none,id=d,file={folder / 'board.img'},format=raw,cache=unsafe,snapshot=on"]
    devices += ["-netdev", f"user,id=n,restrict=on,{forwards}", "-device", "virtio-net-device,netdev=n"]
    outside = ["-display", "none", "-monitor", "none", "-serial", f"file:{folder / 'console.log'}"]
    with (folder / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            # It goes with us, however we end.
            ["setpriv", "--pdeathsig", "KILL", "qemu-system-aarch64", *machine, *devices, *outside],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _await_ssh(board, process, folder)
        yield board
    finally:
        process.kill()
        process.wait()


def _await_ssh(board: Emulated, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + BOOT_S
    while board.ssh("true").returncode != 0:
        assert process.poll() is None, (folder / "qemu.log").read_text()
        assert time.monotonic() < until, (folder / "console.log").read_text("utf-8", "replace")
        time.sleep(1)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]
