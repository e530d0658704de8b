"""Inferences that came whole, written together, have the rows that their logs have one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from profagent import ledger
from profagent.formats.board_files import Done
from profagent.formats.counter_maps import simulated_map
from profagent.formats.join import UNKNOWN_LAYER
from profagent.formats.model_info import LayerTable, Run
from profagent.formats.names import LogKind
from profagent.formats.records import LogProgress, read_unit
from profagent.ingest.changes import (
    FrequencyKnown,
    JobChanges,
    LayersKnown,
    LogAdvanced,
    LogReset,
    NamesAnnounced,
    PlainLogs,
    files_of,
)
from profagent.ingest.feed import Group, WholeFile
from profagent.ingest.logs import oddities
from profagent.store.figures import figures_of
from profagent.store.inference_columns import ColumnReader
from profagent.store.sessions import MapUsed
from tests.encoders import aicore_record, aicpu_record
from tests.fakes.dumps import assert_same, dump
from tests.unit.store.conftest import opened
from tests.unit.store.rows import JOB, Rows, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from profagent.ingest.changes import Change

MHZ = 1000
CLOCK: tuple[Change, ...] = (
    FrequencyKnown(MHZ),
    LogAdvanced("info.json.0", 1, 10, complete=True, digest=b"i"),
)


def group(number: int, aicore: bytes, aicpu: bytes | None = None, start_us: int = 10_000) -> Group:
    rest = f".0.m.3.0.1.1.{number}"
    files: list[WholeFile] = []
    for unit, data in (("aicore", aicore), ("aicpu", aicpu)):
        if data is not None:
            path, done = f"data/{unit}{rest}", Done(len(data), start_us, start_us + 500)
            files += [WholeFile(path, 1, data, b"d"), WholeFile(f"{path}.done", 1, b"done", b"e", done)]
    return Group(name_of(f"data/aicore{rest}"), *files)


def plain(*groups: Group) -> PlainLogs:
    units, places, entries = {}, {}, {}
    for kind in (LogKind.AICORE, LogKind.AICPU):
        of = [place for place, each in enumerate(groups) if kind is LogKind.AICORE or each.aicpu is not None]
        if of:
            pieces = [files_of(groups[place], kind)[0].data for place in of]
            unit = read_unit(kind, pieces, LogProgress.new(len(of)), simulated_map())
            unit.columns["layer_index"] = np.where(unit.columns["sequence"] == 1, 0, UNKNOWN_LAYER).astype(np.int32)
            units[kind], places[kind] = unit, np.array(of)
            entries[kind] = {log: [each.entry for each in found] for log, found in oddities(unit).items()}
    return PlainLogs(groups, units, places, entries)


def core(*records: tuple[int, int, int]) -> bytes:
    """Records given as (net, sequence, ticks)."""
    return b"".join(aicore_record(sequence, ticks, net) for net, sequence, ticks in records)


def cpu(net: int, begin_us: int, end_us: int) -> bytes:
    return aicpu_record(0, begin_us, end_us, (begin_us - 1, end_us + 1), net)


GROUPS = [
    group(0, core((0, 0, 1000), (0, 1, 50), (2, 0, 70)), cpu(1, 10_200, 10_300)),
    group(1, core((0, 0, 11), (0, 4, 12), (1, 20, 13)), cpu(2, 20_000, 20_009), start_us=20_000),
    group(2, core((0, 1, 9)), start_us=0),
]


def written(tmp_path: Path, name: str, *batches: Sequence[Change]) -> dict[str, Any]:
    folder = tmp_path / name
    folder.mkdir()
    with opened(folder) as rows:
        for batch in batches:
            rows.apply(*batch)
        return dump(rows.file)


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, Any]:
    return written(tmp_path, "expected", CLOCK, [*plain(*GROUPS).as_changes()])


def test_they_have_the_same_rows(tmp_path: Path, expected: dict[str, Any]) -> None:
    assert_same(written(tmp_path, "together", CLOCK, [plain(*GROUPS)]), expected)
    figures = [figures for row in expected["inferences"] for figures in row if figures in ("final", "pending")]
    assert sorted(figures) == ["final", "final", "pending"], (
        "the model uses the CPU: of one inference its log is missing"
    )
    assert {row[2] for row in expected["ledger"]} == {ledger.SEQUENCE_GAP, ledger.SEQUENCE_JUMP, ledger.NO_LAYER}


def test_what_came_before_in_the_batch_is_known(tmp_path: Path, expected: dict[str, Any]) -> None:
    assert_same(written(tmp_path, "one", [*CLOCK, plain(*GROUPS)]), expected)
    assert_same(written(tmp_path, "late", [plain(*GROUPS[:2])], [plain(*GROUPS[2:])], CLOCK), expected)


def test_announced_names_become_their_rows(tmp_path: Path, expected: dict[str, Any]) -> None:
    names = NamesAnnounced([file.path for each in GROUPS for file in each.files])
    assert_same(written(tmp_path, "announced", [*CLOCK, names], [plain(*GROUPS)]), expected)


def test_logs_that_are_here_already_take_the_general_way(tmp_path: Path, expected: dict[str, Any]) -> None:
    some = [change for change in plain(GROUPS[0]).as_changes() if getattr(change, "path", "").startswith("data/aicpu")]
    assert_same(written(tmp_path, "again", CLOCK, some, [plain(*GROUPS)]), expected)
    assert_same(written(tmp_path, "twice", CLOCK, [plain(*GROUPS[1:])], [plain(*GROUPS)]), expected)
    void = [LogReset(GROUPS[0].aicore.path)]
    assert_same(written(tmp_path, "void", CLOCK, [plain(GROUPS[0])], void, [plain(*GROUPS)]), expected)


def test_columns_of_the_batch_are_those_of_its_rows(rows: Rows) -> None:
    rows.session(decoded_with=MapUsed("simulated", "0" * 32))
    table = LayerTable((), (Run(0, (), 7, "conv", "Convolution", 0, is_batch=False),))
    changes = [*CLOCK, LayersKnown("m", 0, table), plain(*GROUPS)]
    (applied,) = rows.run(rows.writer.apply([JobChanges(JOB, "/board", changes)]))
    reader = ColumnReader(rows.connection)
    (ours, *_), _ = reader.of(applied)
    others = reader.read(applied.plain[0].inferences)
    assert (ours.rows, ours.tables) == (others.rows, others.tables)
    assert {place: {*entries} for place, entries in ours.entries.items()} == {
        place: {*entries} for place, entries in others.entries.items()
    }
    np.testing.assert_equal(ours.whole, others.whole)
    assert np.isnan(ours.whole.begin_us).tolist() == [False, False, True]
    for unit, other in zip(ours.units, others.units, strict=True):
        assert len(unit.inference)
        np.testing.assert_equal(unit.inference, other.inference)
        np.testing.assert_equal(unit.records._asdict(), other.records._asdict())
    assert figures_of(ours) == figures_of(others)
