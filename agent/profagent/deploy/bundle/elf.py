"""What a program or a shared library of ELF says of itself: its machine, its loader, which libraries it needs."""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["Elf", "read_elf"]

MACHINES = {62: "x86_64", 183: "aarch64"}
# 64 bits, little-endian: what every machine above is.
_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB = 1, 5


@dataclass(frozen=True, slots=True)
class Elf:
    """`machine` as `uname -m` has it; `loader` is a path, empty for a library; `needed` are sonames."""

    machine: str
    loader: str
    needed: tuple[str, ...]


def read_elf(data: bytes) -> Elf | None:
    """None for what is no ELF file of a machine that is known, or is cut off."""
    if not data.startswith(_MAGIC):
        return None
    try:
        return _read(data)
    except (struct.error, ValueError, StopIteration):
        return None


def _read(data: bytes) -> Elf | None:
    _, number, _, _, table, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
    machine = MACHINES.get(number)
    headers = [_PROGRAM_HEADER.unpack_from(data, table + index * size) for index in range(count)]
    if machine is None:
        return None
    loader = next((_text(data, header[2]) for header in headers if header[0] == _PT_INTERP), "")
    dynamic = next((header for header in headers if header[0] == _PT_DYNAMIC), None)
    if dynamic is None:
        return Elf(machine, loader, ())
    begin, end = dynamic[2], dynamic[2] + dynamic[5]
    entries = list(_ENTRY.iter_unpack(data[begin : end - (end - begin) % _ENTRY.size]))
    address = next(value for tag, value in entries if tag == _DT_STRTAB)
    # The string table's place is given as it is in memory.
    load = next(h for h in headers if h[0] == _PT_LOAD and h[3] <= address < h[3] + h[5])
    strings = address - load[3] + load[2]
    return Elf(machine, loader, tuple(_text(data, strings + value) for tag, value in entries if tag == _DT_NEEDED))


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode("ascii")
