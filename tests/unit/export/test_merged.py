"""The pure parts of the merged trace: tracks on which slices nest, and the line through clock samples."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from profagent.errors import ProfagentError
from profagent.export.blocks import Clock, Label, Slices, integers
from profagent.export.json_trace import JsonTrace
from profagent.export.merged import clock_line
from profagent.export.tracks import Tracks


def test_what_does_not_nest_goes_to_another_track() -> None:
    tracks = Tracks()
    spans = [(0, 100), (10, 50), (50, 90), (60, 120), (100, 110), (130, 140)]
    places = [tracks.take("board", "thread 1", *span) for span in spans]
    assert places == [1, 1, 1, 2, 1, 1]
    assert (tracks.process_names[1:], tracks.names[1:]) == (["board"], ["thread 1", "thread 1 (2)"])
    starts, ends = (integers(column) for column in zip(*spans, strict=True))
    assert Tracks().take_all("board", "thread 1", starts, ends).tolist() == places
    in_a_row = integers([0, 10, 10, 30]), integers([10, 10, 20, 31])
    assert tracks.take_all("board", "thread 2", *in_a_row).tolist() == [3, 3, 3, 3]


def test_what_a_lane_holds_stays_together() -> None:
    tracks = Tracks()
    tasks = [(0, 30, 7), (1, 50, 8), (2, 70, 9), (10, 20, 8), (31, 90, 6), (40, 45, 8), (60, 65, 9)]
    starts, ends, lanes = zip(*tasks, strict=True)
    places = tracks.take_all("program", "tasks", integers(starts), integers(ends), lanes)
    assert places.tolist() == [1, 2, 3, 2, 1, 2, 3]


def test_what_a_lane_holds_stays_together_across_pages() -> None:
    tracks = Tracks()
    starts, ends, lanes = integers([0, 10, 20, 40]), integers([5, 100, 30, 50]), [1, 7, 7, 8]
    pages = [slice(0, 2), slice(2, 4)]
    places = [tracks.take_all("program", "tasks", starts[page], ends[page], lanes[page]).tolist() for page in pages]
    assert places == [[1, 1], [1, 2]]


def test_the_clock_line_follows_a_drift_and_tells_how_sure_it_is() -> None:
    samples = [(second * 1_000_000, 500 + 10 * second, 40) for second in range(100)]
    line = clock_line([*samples, (50_000_000, 90_000, 9_000)])
    assert line is not None
    assert line.offset_at(10_000_000 + 600) == pytest.approx(600, abs=0.1)
    assert line.uncertainty_us == pytest.approx(20, abs=0.1)
    assert clock_line([]) is None
    single = clock_line([(1_000, 5, 8)])
    assert single is not None
    assert (single.offset_at(99_999_999), single.uncertainty_us) == (5, 4)
    close = clock_line([(0, 100, 200), (1_000_000, 200, 200)])
    assert close is not None
    assert (close.offset_at(3_600_000_000), close.uncertainty_us) == (150, 150)
    clock = Clock(1_795_230_382_000_000, lambda _: 5.0)
    assert clock.ns(1_795_230_382_000_005.25) == 250


def test_each_part_can_be_opened_by_itself(tmp_path: Path) -> None:
    tracks = Tracks()
    metadata = {"clock": "board"}
    starts = np.arange(9)
    columns = np.zeros(9, np.int64), tracks.take_all("board", "t", starts, starts + 1), starts, starts + 1
    with JsonTrace(tmp_path / "trace.json", tracks, metadata, 400) as parts:
        parts.write(Slices([Label("a", "c")], *columns))
        parts.end(metadata)
    found = [json.loads(file.read_text()) for file in parts.files]
    assert len(found) > 1
    for number, part in enumerate(found, 1):
        assert [event["name"] for event in part["traceEvents"][:3]] == [
            "process_name",
            "process_sort_index",
            "thread_name",
        ]
        following = None if number == len(found) else f"trace.{number + 1}.json"
        assert part["metadata"] == {"clock": "board", "part": number, "goes_on_in": following}
    assert sum(event["ph"] == "X" for part in found for event in part["traceEvents"]) == 9
    assert sorted(tmp_path.iterdir()) == sorted(parts.files)
    # What a shorter one finds of it goes; another trace stays, and what is none.
    others = [tmp_path / f"trace.{len(found)}.json", tmp_path / f"trace.{len(found) + 1}.json"]
    shutil.copy(parts.files[0], others[0])
    others[1].write_text("mine")
    with JsonTrace(tmp_path / "trace.json", tracks, metadata) as short:
        short.write(Slices([Label("a", "c")], *columns))
        short.end(metadata)
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "trace.json", *others])


def test_nothing_stays_of_a_trace_that_cannot_be_written(tmp_path: Path) -> None:
    tracks = Tracks()
    starts = np.arange(9)
    columns = np.zeros(9, np.int64), tracks.take_all("board", "t", starts, starts + 1), starts, starts + 1

    def write() -> None:
        with JsonTrace(tmp_path / "trace.json", tracks, {}, 400) as parts:
            parts.write(Slices([Label("a", "c")], *columns))
            assert len(parts.files) > 1
            raise OSError(errno.ENOSPC, "")

    with pytest.raises(ProfagentError, match="No space"):
        write()
    assert [*tmp_path.iterdir()] == []
