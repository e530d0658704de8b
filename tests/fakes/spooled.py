"""Collections as the daemon's spools write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profagent_app.marks import MAGIC, VERSION, Kind
from tests.program.reader import RECORD

STAMP = "20261123T140000123Z"
OPS, MARKS, METRICS = f"OPS-camera-{STAMP}", f"MARKS-program-{STAMP}", f"METRICS-board-{STAMP}"
START_US = 1_795_230_382_000_000


def spooled(directory: Path, *segments: bytes, is_over: bool = True, first: int = 1) -> Path:
    """A collection with these segments; `first` is the number of the first of them."""
    directory.mkdir(parents=True)
    for number, data in enumerate(segments, first):
        (directory / f"{number:08d}").write_bytes(data)
        if is_over:
            (directory / f"{number:08d}.done").write_text(f"bytes:{len(data)}\n")
    if is_over:
        (directory / "end").write_bytes(b"")
    return directory


def mark(
    kind: Kind, text: str, begin_us: int, end_us: int, attributes: str = "", *, tid: int = 7, number: int = 0,
    lane: int = 0, pid: int = 5, writer: int = 0,
) -> bytes:  # fmt: skip
    """The record of a mark."""
    said, more = text.encode(), attributes.encode()
    return RECORD.pack(
        MAGIC, VERSION, kind, len(said), pid, tid, begin_us * 1000, end_us * 1000, number, lane, len(more), writer,
        said + more,
    )  # fmt: skip


def sweeps(*values: tuple[int, float], names: Sequence[str] = ("npu.hw_utilization",)) -> bytes:
    """Sweeps at times, with the same value for all names."""
    lines = [f"n {number} % {name}" for number, name in enumerate(names)]
    for time_us, value in values:
        pairs = " ".join(f"{number}={value:g}" for number in range(len(names)))
        lines.append(f"s {time_us} {pairs}")
    return "".join(f"{line}\n" for line in lines).encode()
