"""Whether everything that a JOB is expected to hold is complete (format page 1): one look at its data directory."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.logs import DATA_DIRECTORY, LogKind, api_model, is_api, kind_of, profiled_model
from profagentd.opening import Gone, NotAFile, OpenJob, Place, Unreadable, in_data, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class Survey:
    """What was found."""

    is_complete: bool
    newest_wall_us: int  # of the newest change among the files that were looked at; 0 without any


def survey(place: Place) -> Survey:
    """Whether the JOB at `place` has ended: each model's acl_api is ended, and so is each log with data."""
    try:
        with OpenJob(place) as files:
            return _survey(files, place)
    except OSError:
        return Survey(is_complete=False, newest_wall_us=0)


def _survey(files: OpenJob, place: Place) -> Survey:
    profiled = {model for model in map(profiled_model, _names(place)) if model}
    apis = [in_data(name) for name in _names(place) if kind_of(name) is LogKind.DATA and is_api(name)]
    ended = [path for path in apis if files.has_done(path)]
    waited = [path for path in apis if api_model(path) in profiled or _size(files, path)]
    if not ended or len(ended) < len(waited) or set(waited) - set(ended):
        return Survey(is_complete=False, newest_wall_us=0)
    return Survey(is_complete=_all_ended(files, _data(place)), newest_wall_us=0)


def _all_ended(files: OpenJob, paths: Iterable[bytes]) -> bool:
    return all(files.has_done(path) or not _size(files, path) for path in paths)


def _data(place: Place) -> Iterator[bytes]:
    return (in_data(name) for name in _names(place) if kind_of(name) is LogKind.DATA and not is_api(name))


def _names(place: Place) -> Iterator[bytes]:
    descriptor = open_directory(Place(place.root, os.path.join(place.path, DATA_DIRECTORY)))
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                yield os.fsencode(entry.name)
    finally:
        os.close(descriptor)


def _size(files: OpenJob, path: bytes) -> int:
    try:
        return files.status(path).st_size
    except (Gone, NotAFile, Unreadable):
        return 0
