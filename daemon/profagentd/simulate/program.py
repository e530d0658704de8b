"""The simulated program's side: it subscribes to its model, and marks its own steps.

It writes to the daemon's FIFOs as a real program would, and loses what a real one would lose. On a real board a program
records or subscribes, never both at once (the-format.md 5).
"""

from __future__ import annotations

import os
import struct
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from profagent_app.marks import Kind, MarkWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagentd.simulate.draw import Executed, InferenceDraw


SUBSCRIPTION = "program"
PREPROCESS_US, POSTPROCESS_US = 900, 350
"""Time of the program's own steps before and after an inference; invented."""
CAMERA_US = 1_500  # from the capture of a frame to its first step; invented
STAGES = ("preprocess", "infer", "postprocess")
_JITTER = 0.02

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


class SlowStage(NamedTuple):
    """Stage that takes `factor` times as long in a `share` of the frames, chosen at random."""

    name: str
    factor: float
    share: float


class FrameSteps:
    """Steps of the program's frames, drawn at random: same seed, same steps."""

    def __init__(self, seed: int, slow: Sequence[SlowStage] = ()) -> None:
        self._rng, self._slow = Random(f"program {seed}"), slow

    def around(self, begin_us: int, end_us: int) -> list[tuple[str, int, int]]:
        """Return name, begin and end of each step of a frame whose call takes this time.

        What slows the step of the inference down is before the call.
        """
        factors = dict.fromkeys(STAGES, 1.0)
        for name, factor, share in self._slow:
            if self._rng.random() < share:
                factors[name] *= factor
        before, after = (
            round(us * factors[name] * (1 + _JITTER * max(-4.0, min(4.0, self._rng.gauss(0.0, 1.0)))))
            for us, name in ((PREPROCESS_US, "preprocess"), (POSTPROCESS_US, "postprocess"))
        )
        infer_us = begin_us - round((end_us - begin_us) * (factors["infer"] - 1))
        times = (infer_us - before, infer_us, end_us, end_us + after)
        return list(zip(STAGES, times, times[1:]))


class SimulatedProgram:
    """Writer to the FIFOs in the directory `run`. Missing FIFOs mean that no daemon wants the records."""

    def __init__(self, run: Path, pid: int, steps: FrameSteps) -> None:
        self._marks, self._steps = MarkWriter(str(run / "marks"), pid), steps
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
        steps = self._steps.around(begin_us, end_us)
        attributes = b'{"frame":%d,"captured_us":%d}' % (self._inferences, steps[0][1] - CAMERA_US)
        for text, step_us, over_us in steps:
            self._marks.write(Kind.SPAN, text.encode(), step_us * 1000, over_us * 1000, 0, attributes)
            attributes = b'{"frame":%d}' % self._inferences
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
