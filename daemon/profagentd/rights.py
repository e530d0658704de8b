"""What the kernel lets this process do, where a system call does not tell it."""

from __future__ import annotations

import os

# The number of CAP_DAC_OVERRIDE (capabilities(7)).
_DAC_OVERRIDE = 1
_STATUS = "/proc/self/status"


def may_write(directory: int) -> bool:
    """Whether names in an open directory may be made and removed."""
    if os.access(f"/proc/self/fd/{directory}", os.W_OK):
        return True
    # access(2) passes over the capabilities of a user who is not root.
    return _overrides_permissions() and not os.fstatvfs(directory).f_flag & os.ST_RDONLY


def _overrides_permissions() -> bool:
    with open(_STATUS, encoding="ascii", errors="replace") as file:
        effective = next((line.split()[1] for line in file if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _DAC_OVERRIDE & 1)
