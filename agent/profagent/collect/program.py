"""What the file of a program tells of it: for which machine it is, and which calls and acl.json it names."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass

__all__ = ["CALLS", "Main", "read_main", "runs_on"]

LARGEST_BYTES = 8 << 20
"""A program is looked at up to here."""
CALLS = ("svp_acl_init", "svp_acl_finalize", "svp_acl_prof_init")
_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}
# What a kernel runs beside its own.
_ALSO = {"x86_64": {"i386"}, "aarch64": {"arm"}}
_ACL_JSON = re.compile(rb"[\x21-\x7e]{0,200}\.json(?![\x21-\x7e])")


@dataclass(frozen=True, slots=True)
class Main:
    """`machine` is empty for a script, or what is not known. Without ELF nothing is known of its calls."""

    is_elf: bool
    machine: str
    calls: frozenset[str]
    """Of CALLS, those whose names stand in the file."""
    acl_paths: tuple[str, ...]
    """Names of JSON files that stand in it."""
    is_whole: bool
    """Whether it was looked at to its end."""
    digest: str = ""
    """SHA-256, in hexadecimal digits; empty where it was not."""

    def lacks(self, call: str) -> bool:
        """Whether it is sure that the file does not name this call; a library may."""
        return self.is_elf and self.is_whole and call not in self.calls


def read_main(data: bytes, *, is_whole: bool = True) -> Main:
    """What its first bytes tell, or all of them."""
    digest = hashlib.sha256(data).hexdigest() if is_whole else ""
    if not data.startswith(b"\x7fELF") or len(data) < 20:
        return Main(is_elf=False, machine="", calls=frozenset(), acl_paths=(), is_whole=is_whole, digest=digest)
    (number,) = struct.unpack_from("<H" if data[5] == 1 else ">H", data, 18)
    calls = frozenset(call for call in CALLS if call.encode() + b"\0" in data)
    paths = dict.fromkeys(found.decode("ascii") for found in _ACL_JSON.findall(data))
    machine = _MACHINES.get(number, "")
    return Main(is_elf=True, machine=machine, calls=calls, acl_paths=tuple(paths), is_whole=is_whole, digest=digest)


def runs_on(main: Main, machine: str) -> bool:
    """Whether a board of this `uname -m` can run it, as far as is known."""
    if not main.machine or machine not in _MACHINES.values():
        return True
    return main.machine == machine or main.machine in _ALSO.get(machine, set())
