"""Writing a file that is either there as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

from profagent.errors import ProfagentError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["make_directory", "write_atomically"]

WRITE_BYTES = 1 << 18


def make_directory(directory: Path) -> None:
    """Make a directory and its parents; ProfagentError when that is not possible."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(directory, error) from error


def write_atomically(target: Path, pieces: Iterable[bytes]) -> None:
    """Write the pieces beside `target` and rename; the old file stays on any error. Raises ProfagentError."""
    temporary = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        try:
            with temporary.open("xb", buffering=WRITE_BYTES) as file:
                file.writelines(pieces)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _not_written(target, error) from error


def _not_written(target: Path, error: OSError) -> ProfagentError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    shown = os.fsencode(target).decode("utf-8", "backslashreplace")
    return ProfagentError(f"cannot write {shown}: {reason}", hint="check the permissions and the free space there")
