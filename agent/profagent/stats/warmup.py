"""Which inferences of a load are its warm-up: leading ones that take longer than the rest by more than its noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profagent.stats.figures import MAD_TO_SIGMA, mad

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["warm_up"]

# Of fewer nobody can say what is usual.
FEWEST_INFERENCES = 10
# So many standard deviations of the later half above its median, and at least so much of it.
NOISE_FACTOR = 4.0
FLOOR = 0.02
LARGEST_SHARE = 4


def warm_up(times: NDArray[np.float64]) -> int:
    """How many of a load's first inferences to leave out, by their times in the order they ran; at most a quarter."""
    if len(times) < FEWEST_INFERENCES:
        return 0
    rest = times[len(times) // 2 :]
    usual = float(np.median(rest))
    limit = usual + max(NOISE_FACTOR * MAD_TO_SIGMA * mad(rest), FLOOR * usual)
    leading = times[: len(times) // LARGEST_SHARE] > limit
    return len(leading) if leading.all() else int(leading.argmin())
