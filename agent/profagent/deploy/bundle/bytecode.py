"""Python sources as bytecode that is loaded without them: a board's first start compiles nothing."""

from __future__ import annotations

import importlib.util
import marshal
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["can_compile", "compiled"]

# Bit 0: what follows is the source's hash, not its time. Bit 1, that it be checked, is not set.
_UNCHECKED_HASH = 1
# The last form without references, which depend on what else a process has in memory: the same source, the same bytes.
_MARSHAL_VERSION = 2


def can_compile(version: tuple[int, int]) -> bool:
    """Whether this Python's bytecode is that of a CPython of this version."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] == version


def compiled(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same files with X.pyc for each X.py; one that does not compile stays as it is."""
    return dict(_compiled(path, data) if path.endswith(".py") else (path, data) for path, data in files.items())


def _compiled(path: str, source: bytes) -> tuple[str, bytes]:
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        return path, source
    header = importlib.util.MAGIC_NUMBER + struct.pack("<I", _UNCHECKED_HASH) + importlib.util.source_hash(source)
    return f"{path}c", header + marshal.dumps(code, _MARSHAL_VERSION)
