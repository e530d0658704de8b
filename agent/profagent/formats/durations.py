"""From the NPU's duration counter to microseconds (format page 3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["CYCLES_PER_TICK", "ticks_to_us"]

CYCLES_PER_TICK = 100


@overload
def ticks_to_us(ticks: int, frequency_mhz: int) -> float: ...
@overload
def ticks_to_us(ticks: npt.NDArray[Any], frequency_mhz: int) -> npt.NDArray[np.float64]: ...
def ticks_to_us(ticks: int | npt.NDArray[Any], frequency_mhz: int) -> float | npt.NDArray[np.float64]:
    """Give ticks × 100 / MHz, the runtime's own formula; one value, or an array of the same shape in float64."""
    if isinstance(ticks, np.ndarray):
        return ticks.astype(np.float64) * CYCLES_PER_TICK / frequency_mhz
    return ticks * CYCLES_PER_TICK / frequency_mhz
