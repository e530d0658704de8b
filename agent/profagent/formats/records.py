"""The binary records of aicore, aicpu and acl_api logs as numpy arrays (format page 3.1 to 3.3)."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import numpy.typing as npt

from profagent.formats.names import LogKind

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


API_MAGIC = 0x5A5A

# `words` is the whole record again: what the hardware wrote between ticks and net is for counter maps to read.
AICORE_DTYPE = np.dtype(
    {
        "names": ["sequence", "ticks", "net", "words"],
        "formats": ["<u4", "<u4", "<u4", ("<u4", 64)],
        "offsets": [0x00, 0x04, 0xFC, 0x00],
        "itemsize": 256,
    }
)
AICPU_DTYPE = np.dtype(
    {
        "names": ["sequence", "begin_us", "end_us", "segment_start_us", "segment_end_us", "net"],
        "formats": ["<u4", "<u8", "<u8", "<u8", "<u8", "<u4"],
        "offsets": [0x00, 0x08, 0x10, 0x18, 0x20, 0x7C],
        "itemsize": 128,
    }
)
API_DTYPE = np.dtype(
    [("magic", "<u4"), ("api", "<u4"), ("begin_us", "<u8"), ("end_us", "<u8"), ("pid", "<u4"), ("tid", "<u4")]
)
RECORD_BYTES = {
    LogKind.AICORE: AICORE_DTYPE.itemsize,
    LogKind.AICPU: AICPU_DTYPE.itemsize,
    LogKind.ACL_API: API_DTYPE.itemsize,
}

API_NAMES = {
    0: "svp_acl_mdl_load_from_mem",
    1: "svp_acl_mdl_unload",
    2: "svp_acl_mdl_execute",
    3: "svp_acl_mdl_execute_async",
    4: "svp_acl_rt_synchronize_stream",
    5: "svp_acl_ext_process_aicpu_task",
}

Buffer = bytes | bytearray | memoryview
Records = np.ndarray[Any, np.dtype[np.void]]


def view_records(data: Buffer, dtype: np.dtype[Any]) -> Records:
    """View the whole records of `data` without a copy; bytes of a last, partial one are left out."""
    count = len(data) // dtype.itemsize
    return np.frombuffer(data, dtype=dtype, count=count) if count else np.empty(0, dtype=dtype)


def api_magic_faults(records: Records) -> npt.NDArray[np.intp]:
    """Indices of acl_api records without the magic number, for a reader that goes on with the others."""
    return np.flatnonzero(records["magic"] != API_MAGIC)


def api_name(api: int) -> str:
    """Name of the function that an acl_api record is about."""
    return API_NAMES.get(api, f"unknown({api})")
