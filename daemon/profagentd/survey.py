"""Whether everything that a JOB is expected to hold is complete (format page 1): a look through its data directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from profagentd.logs import DATA_DIRECTORY, LogKind, api_model, kind_of, profiled_model
from profagentd.opening import Gone, NotAFile, OpenJob, Place, Unreadable, in_data, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


class Survey:
    """One survey, a slice at a time, so that no thread is held for long.

    A JOB has ended when at least one model's acl_api has its `.done`, and each log that is waited for has one that
    parses: the acl_api of a model built for profiling, and whatever has data. Empty files are not waited for.
    """

    def __init__(self, place: Place) -> None:
        self._looks = _looks(place)

    def look(self, names: int) -> bool | None:
        """Look at so many names more: whether the JOB has ended, or None when that is still open. Blocks."""
        try:
            for _ in range(names):
                verdict = next(self._looks)
                if verdict is not None:
                    return verdict
        except OSError:
            return False
        return None


def _looks(place: Place) -> Iterator[bool | None]:
    """None for each name that is no reason to decide; at last whether the JOB has ended."""
    with OpenJob(place) as files:
        profiled = set()
        interfaces = []
        for name in _names(place):
            profiled.add(profiled_model(name))
            if api_model(name) is not None:
                interfaces.append(name)
            yield None
        yield from _api_looks(files, interfaces, profiled)
        for name in _names(place):
            if kind_of(name) is LogKind.DATA and _is_waited_for(files, name):
                yield False
            yield None
    yield True


def _api_looks(files: OpenJob, interfaces: list[bytes], profiled: set[bytes | None]) -> Iterator[bool | None]:
    ended = False
    for name in interfaces:
        if files.done_length(in_data(name)) is not None:
            ended = True
        elif api_model(name) in profiled:
            yield False
        yield None
    if not ended:
        yield False


def _is_waited_for(files: OpenJob, name: bytes) -> bool:
    """Whether there is data and no end of it."""
    path = in_data(name)
    try:
        return files.done_length(path) is None and files.status(path).st_size > 0
    except (Gone, NotAFile, Unreadable):
        return False


def _names(place: Place) -> Iterator[bytes]:
    descriptor = open_directory(Place(place.root, os.path.join(place.path, DATA_DIRECTORY)))
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                yield os.fsencode(entry.name)
    finally:
        os.close(descriptor)
