"""What a soak watches of a process, and whether it grows: /proc, and a line through the samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
# A slope counts as growth when it is above so many of its standard errors, and above what a run may gain by warming up.
ERRORS = 3.0
LARGEST_GAIN_BYTES = 8 * MIB
# Over less than that a process has only begun.
SHORTEST_SPAN_S = 60.0


@dataclass(frozen=True)
class Sample:
    """One look at a process: seconds since the soak began, resident bytes, open descriptors."""

    at_s: float
    rss_bytes: int
    descriptors: int


@dataclass(frozen=True)
class Trend:
    """The slope of resident memory, with its standard error, over the span that was looked at."""

    slope_bytes_per_s: float
    error_bytes_per_s: float
    span_s: float

    @property
    def is_growth(self) -> bool:
        """Whether it is beyond noise, and beyond what caches gain while they fill."""
        is_beyond_noise = self.slope_bytes_per_s > ERRORS * self.error_bytes_per_s
        is_long = self.span_s >= SHORTEST_SPAN_S
        return is_long and is_beyond_noise and self.slope_bytes_per_s * self.span_s > LARGEST_GAIN_BYTES

    def __str__(self) -> str:
        slope, error = (each * 60 / MIB for each in (self.slope_bytes_per_s, self.error_bytes_per_s))
        return f"{slope:+.3f} ± {error:.3f} MiB/min over {self.span_s:.0f} s"


def sampled(pid: int, at_s: float) -> Sample | None:
    """A process as it is now; None when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names are counted, paths are not wanted
    except (OSError, IndexError):
        return None
    return Sample(at_s, pages * PAGE_BYTES, descriptors)


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The later half: what comes before fills caches, and opens the files of the first JOBs."""
    return samples[len(samples) // 2 :]


def usual_descriptors(samples: Sequence[Sample]) -> tuple[int, int]:
    """The median of open descriptors in the first and in the last third of the later half: looking opens some, too."""
    later = [sample.descriptors for sample in settled(samples)]
    third = max(1, len(later) // 3)
    return int(np.median(later[:third])), int(np.median(later[-third:]))


def trend(samples: Sequence[Sample]) -> Trend | None:
    """The least-squares line through the later half; None for fewer than three samples there."""
    later = settled(samples)
    if len(later) < 3:
        return None
    times = np.array([sample.at_s for sample in later], dtype=float)
    sizes = np.array([sample.rss_bytes for sample in later], dtype=float)
    times -= times.mean()
    spread = float(times @ times)
    slope = float(times @ sizes) / spread
    rest = sizes - sizes.mean() - slope * times
    # Samples that follow one another are alike: their noise is counted as that of far fewer.
    error = float(np.sqrt(rest @ rest / (len(later) - 2) / spread) * np.sqrt(_likeness(rest)))
    return Trend(slope, error, float(later[-1].at_s - later[0].at_s))


def _likeness(rest: np.ndarray) -> float:
    """How many samples count as one: by the correlation of neighbours."""
    total = float(rest @ rest)
    likeness = float(rest[:-1] @ rest[1:]) / total if total else 0.0
    likeness = min(max(likeness, 0.0), 0.99)
    return (1 + likeness) / (1 - likeness)
