"""The simulated program's side: it subscribes to its model, and marks its own steps.

It writes to the daemon's FIFOs as a real program would, and loses what a real one would lose. On a real board a program
records or subscribes, never both at once (the-format.md 5).
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from profagent_app.marks import Kind, MarkWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from profagentd.simulate.draw import Executed, InferenceDraw


SUBSCRIPTION = "program"
PREPROCESS_US, POSTPROCESS_US = 900, 350
"""Time of the program's own steps before and after an inference; invented."""

_DESCRIPTOR = struct.Struct("<II108xIII24xQ8xQQ32s32s8x")
# Descriptors in one write: up to PIPE_BUF bytes are written atomically.
_BURST = 16
_LONGEST = 32


def descriptor(executed: Executed, start_us: int, model_id: int) -> bytes:
    """Return the library's descriptor of an executed layer (the-format.md 4); `start_us` is its segment's."""
    kind, name = executed.layer.type.encode()[:_LONGEST], executed.layer.name.encode()[:_LONGEST]
    begin_us, end_us = start_us + executed.begin_us, start_us + executed.end_us
    lengths = len(kind), len(name)
    return _DESCRIPTOR.pack(
        executed.sequence, executed.ticks, model_id, *lengths, begin_us, end_us, end_us - begin_us, kind, name
    )


class SimulatedProgram:
    """Writer to the FIFOs in the directory `run`. Missing FIFOs mean that no daemon wants the records."""

    def __init__(self, run: Path, pid: int) -> None:
        self._marks = MarkWriter(str(run / "marks"), pid)
        self._path = run / f"ops.{SUBSCRIPTION}"
        self._fifo = -1  # descriptor of the FIFO for operators, or -1
        self._inferences = 0  # number of the frame in the marks

    def start(self) -> None:
        """Open the FIFO for operators, if there is one."""
        try:
            self._fifo = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            # Opened without waiting for a reader. Writes wait for room, as those of the library do.
            os.set_blocking(self._fifo, True)
        except OSError:
            self._fifo = -1

    def end(self) -> None:
        """Close the FIFO, which ends the subscription."""
        if self._fifo >= 0:
            os.close(self._fifo)
            self._fifo = -1

    def write_inference(self, draw: InferenceDraw, npu_us: int, call_us: tuple[int, int], model_id: int) -> None:
        """Write an inference's marks and descriptors.

        `call_us` is its call's begin and end, `npu_us` the NPU's begin.
        """
        begin_us, end_us = call_us
        self._inferences += 1
        attributes = b'{"frame":%d}' % self._inferences
        steps = (
            (b"preprocess", begin_us - PREPROCESS_US, begin_us),
            (b"infer", begin_us, end_us),
            (b"postprocess", end_us, end_us + POSTPROCESS_US),
        )
        for text, step_us, over_us in steps:
            self._marks.write(Kind.SPAN, text, step_us * 1000, over_us * 1000, 0, attributes)
        if self._fifo >= 0:
            self._write_descriptors(list(_descriptors(draw, npu_us, model_id)))

    def _write_descriptors(self, descriptors: list[bytes]) -> None:
        try:
            for first in range(0, len(descriptors), _BURST):
                os.write(self._fifo, b"".join(descriptors[first : first + _BURST]))
        except OSError:  # the daemon is gone
            self.end()


def _descriptors(draw: InferenceDraw, npu_us: int, model_id: int) -> Iterator[bytes]:
    for segment_us, segment in draw.placed(npu_us):
        for executed in segment.executed:
            yield descriptor(executed, segment_us, model_id)
