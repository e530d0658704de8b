"""Work in a process of its own, of which this one keeps the answer only."""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Callable, NoReturn

if TYPE_CHECKING:
    from io import FileIO


def answer_of(work: Callable[[], str]) -> str:
    """What `work` gives, done by a copy of this process, which must have no threads. RuntimeError when it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, open(writing, "wb", buffering=0))  # noqa: SIM115 - it ends with the process
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("a process that was to look at something failed; what it said stands above")
    return answer


def _be_child(work: Callable[[], str], pipe: FileIO) -> NoReturn:
    """Nothing that the parent is in the middle of is gone on with, or cleaned up, here."""
    try:
        pipe.write(work().encode())
    except BaseException:  # noqa: BLE001 - the parent's own way ends here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
