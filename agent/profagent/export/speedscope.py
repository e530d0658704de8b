"""Writer of speedscope profiles (https://www.speedscope.app): one profile for the slices of each track.

The views of speedscope add up frames of one name, so all inferences share the name `inference`, without a number.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Self

import msgspec

from profagent import __version__
from profagent.export.blocks import Slices
from profagent.export.session_metadata import title_of
from profagent.files import written_atomically
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.export.blocks import Block, Label
    from profagent.export.tracks import Tracks

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_encode = msgspec.json.Encoder().encode


class _TrackProfile:
    """Events of a track, which wait in a temporary file of their own."""

    def __init__(self, spool: IO[bytes]) -> None:
        self.spool = spool
        self.begin_ns: int | None = None
        self.end_ns = 0
        # Frame and end of each open slice, the innermost one last.
        self._open: list[tuple[int, int]] = []
        # Separator before the next event.
        self._before = b""

    def add(self, frame: int, start_ns: int, end_ns: int) -> None:
        """Add a slice. Slices come ordered by start, and each lies within the slices that are open at its start."""
        self.close_before(start_ns)
        if self.begin_ns is None:
            self.begin_ns = start_ns
        self._event(b"O", frame, start_ns)
        self._open.append((frame, end_ns))

    def close_before(self, at_ns: int | None) -> None:
        """Close the slices that end at this time or before; None closes all."""
        while self._open and (at_ns is None or self._open[-1][1] <= at_ns):
            frame, end_ns = self._open.pop()
            self._event(b"C", frame, end_ns)
            self.end_ns = max(self.end_ns, end_ns)

    def _event(self, kind: bytes, frame: int, at_ns: int) -> None:
        at = _encode(at_ns / NS_PER_US)
        self.spool.write(b'%b{"type":"%b","frame":%d,"at":%b}' % (self._before, kind, frame, at))
        self._before = b",\n"


class SpeedscopeFile:
    """Trace in one speedscope file; a `Writer` for `export_trace`."""

    def __init__(self, file: Path, tracks: Tracks, metadata: dict[str, Any]) -> None:
        self.files = [file]
        self._tracks, self._metadata = tracks, metadata
        # Owner of the file and of the temporary files of all profiles.
        self._opened = ExitStack()
        # Number of each frame, by its name.
        self._frames: dict[str, int] = {}
        # Profile of each track, in the order in which tracks first have a slice.
        self._profiles: dict[int, _TrackProfile] = {}

    def __enter__(self) -> Self:
        """Open the file, which appears under its name at the end."""
        self._out = self._opened.enter_context(written_atomically(self.files[0]))
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file and the profiles; on an error, remove the file."""
        self._opened.__exit__(*error)  # type: ignore[arg-type]

    def write(self, block: Block) -> int:
        """Add the slices of a block, and return their number; a profile has no other events."""
        if not isinstance(block, Slices):
            return 0
        frames = [self._frame(label) for label in block.labels]
        columns = (block.label, block.track, block.start_ns, block.end_ns)
        for label, track, start_ns, end_ns in zip(*(column.tolist() for column in columns), strict=True):
            if track not in self._profiles:
                spool = self._opened.enter_context(TemporaryFile())  # noqa: SIM115 - the stack closes it
                self._profiles[track] = _TrackProfile(spool)
            self._profiles[track].add(frames[label], start_ns, end_ns)
        return block.size

    def _frame(self, label: Label) -> int:
        name = label.category if label.category == "inference" else label.name
        return self._frames.setdefault(name, len(self._frames))

    def end(self, metadata: dict[str, Any]) -> None:
        """Write the frames and the profiles, and close the file."""
        head_of_file: dict[str, Any] = {
            "$schema": SCHEMA,
            "name": self._title(),
            "exporter": f"profagent {__version__}",
        }
        head_of_file |= {"activeProfileIndex": 0, "profagent": metadata}
        head_of_file["shared"] = {"frames": [{"name": name} for name in self._frames]}
        self._out.write(_encode(head_of_file)[:-1] + b',"profiles":[')
        # The frames stand before all profiles, and are known at the end only: this is why profiles wait in files.
        for place, (track, profile) in enumerate(self._profiles.items()):
            profile.close_before(None)
            process = self._tracks.process_names[self._tracks.pids[track]]
            head = {"type": "evented", "name": f"{process}, {self._tracks.names[track]}", "unit": "microseconds"}
            times = {"startValue": (profile.begin_ns or 0) / NS_PER_US, "endValue": profile.end_ns / NS_PER_US}
            self._out.write((b",\n" if place else b"\n") + _encode({**head, **times})[:-1] + b',"events":[\n')
            profile.spool.seek(0)
            shutil.copyfileobj(profile.spool, self._out)
            self._out.write(b"]}")
        self._out.write(b"\n]}\n")
        self._opened.close()

    def _title(self) -> str:
        return ", ".join(map(title_of, self._metadata["sessions"]))
