"""Writing a file that is either there as a whole or not at all, and folders like it."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from profagent.errors import ProfagentError
from profagent.ingest.regular_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["alone_in", "make_directory", "write_atomically", "write_folder_atomically"]

WRITE_BYTES = 1 << 18
OWNER_ONLY = 0o700


def make_directory(directory: Path) -> None:
    """Make a directory and its parents, for their owner alone; ProfagentError when that is not possible."""
    try:
        make_private_folder(directory)
    except OSError as error:
        raise _not_written(directory, error) from error


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Hold off others that change a directory's files and ask for this, too; they are waited for. ProfagentError."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _not_written(directory, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_atomically(target: Path, pieces: Iterable[bytes], *, durably: bool = False) -> None:
    """Write the pieces beside `target` and rename; the old file stays on any error. Raises ProfagentError.

    `durably`: once this has returned, the new file is there after a loss of power, too.
    """
    temporary = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        try:
            with temporary.open("xb", buffering=WRITE_BYTES) as file:
                file.writelines(pieces)
                if durably:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(target)
            if durably:
                _sync_directory(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _not_written(target, error) from error


def write_folder_atomically(target: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder for its owner alone (0700, files 0600) with all its files, durably, or none at all. ProfagentError.

    Names may have one folder before them. A folder that is there already, and not empty, stays as it is.
    """
    temporary = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        target.parent.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        temporary.mkdir(mode=OWNER_ONLY)
        try:
            for name, content in files.items():
                (temporary / name).parent.mkdir(mode=OWNER_ONLY, exist_ok=True)
                _write_durably(temporary / name, content)
            for folder in {(temporary / name).parent for name in files} | {temporary}:
                _sync_directory(folder)
            temporary.replace(target)
            _sync_directory(target.parent)
        except BaseException:
            shutil.rmtree(temporary)
            raise
    except OSError as error:
        raise _not_written(target, error) from error


def _write_durably(path: Path, content: bytes) -> None:
    path.touch(mode=OWNER_ONLY & 0o666, exist_ok=False)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    """Make the names in it durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_written(target: Path, error: OSError) -> ProfagentError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    shown = os.fsencode(target).decode("utf-8", "backslashreplace")
    return ProfagentError(f"cannot write {shown}: {reason}", hint="check the permissions and the free space there")
