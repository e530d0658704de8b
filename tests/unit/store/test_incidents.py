"""Incidents without an inference: marks, metrics, losses, and what a person marked on the screen."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from importlib import resources

import pytest

from profagent.formats.incident_rules import IncidentRule, KeepWhen
from profagent.ingest.source import schemas
from profagent.store import counters, marks, thinning
from profagent.store.incidents import Found, Incidents

S = 1_000_000
ROWS = """
INSERT INTO board VALUES (1, 'b', 'vm', 'SS928');
INSERT INTO session (session, board, source, address, started_us, simulated, daemon_version, sdk_version)
VALUES (1, 1, 'record', 'here', 0, 0, '', '');
INSERT INTO job (job, board, name, directory, state)
VALUES (1, 1, 'MARKS-a', '', 'open'), (2, 1, 'METRICS-a', '', 'open');
INSERT INTO session_job VALUES (1, 1), (1, 2);
INSERT INTO log (log, job, path, shown_path, kind, generation, offset, complete)
VALUES (1, 1, 'm', 'm', 'foreign', 1, 9, 0), (2, 2, 'm', 'm', 'foreign', 1, 9, 0);
INSERT INTO range VALUES (1, 1, 0, 'mark', 'alarm', '{}', 1, 1, 1000000000, 1000000000, 0, 0),
                         (1, 1, 1, 'mark', 'other', '{}', 1, 1, 5000000000, 5000000000, 1, 0);
INSERT INTO metric_name VALUES (2, NULL, 0, 'npu.temperature', 'C');
INSERT INTO metric VALUES (2, 1, 0, 0, 20000000, 80), (2, 1, 1, 0, 21000000, 96), (2, 1, 2, 0, 22000000, 97);
INSERT INTO ledger_entry (session, origin, grade, reason, detail, count)
VALUES (1, 'link', 'note', 'recreated', '', 1), (1, 'link', 'loss', 'removed-unread', '', 1);
INSERT INTO session_mark VALUES (1, 40000000, 'look');
"""


@pytest.fixture
def connection() -> sqlite3.Connection:
    found = sqlite3.connect(":memory:", isolation_level=None)
    own = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
    for script in (own, *schemas(), counters.SCHEMA, marks.SCHEMA, thinning.SCHEMA, ROWS):
        found.executescript(script)
    return found


def choice(*rules: str) -> KeepWhen:
    return KeepWhen(tuple(map(IncidentRule.parse, rules)), S // 2, None, 0)


def test_marks_metrics_losses_and_a_persons_mark_make_incidents_once(connection: sqlite3.Connection) -> None:
    chosen = choice("mark[alarm]", "metric[npu.temperature] > 95", "loss")
    for _ in range(2):
        # A process that begins again goes on behind what the one before has seen.
        found = Incidents(connection, 1, chosen)
        found.look_elsewhere(connection, 60 * S)
        found.write(connection)
        assert sorted((each.time_us, each.rule, each.value) for each in found.all) == [
            (1 * S, "mark[alarm]", None),
            (21 * S, "metric[npu.temperature] > 95", 96.0),
            (40 * S, "marked: look", None),
            (60 * S, "loss: removed-unread", None),
        ]


def test_what_fires_within_a_window_widens_it(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO session_mark VALUES (1, 40700000, '')")
    found = Incidents(connection, 1, choice("mark"))
    found.look_elsewhere(connection, None)
    first = found.all[0]
    assert (first.begin_us, first.end_us, first.rules) == (39_500_000, 41_200_000, ["marked: look", "marked"])
    assert [each.time_us for each in found.all[1:]] == [1 * S, 5 * S]


def test_a_window_is_not_widened_when_the_budget_is_spent(connection: sqlite3.Connection) -> None:
    found = Incidents(connection, 1, replace(choice("loss"), budget_bytes=100))
    for time_s, size in ((10.0, 50), (10.8, 100), (11.2, 100), (11.5, 100)):
        found.add(Found(int(time_s * S), "loss"))
        found.all[0].bytes = size
    windows = [(each.begin_us / S, each.end_us / S, each.kept) for each in found.all]
    assert windows == [(9.5, 11.3, 1), (11.0, 12.0, 0)]
    # The budget is that of a day.
    found.add(Found(86_400 * S, "loss"))
    assert [each.kept for each in found.all] == [1, 0, 1]


def test_an_incident_is_about_the_rule_with_the_largest_excess(connection: sqlite3.Connection) -> None:
    found = Incidents(connection, 1, choice("loss"))
    found.add(Found(10 * S, "mark"))
    found.add(Found(10 * S + 1, "latency > 1ms", 1400.0, 1000.0, "us", "yolo", 7, "conv1", 400.0))
    found.add(Found(10 * S + 2, "stage > 8ms", 26_000.0, 8000.0, "us", None, None, "preprocess", 18_000.0))
    found.add(Found(10 * S + 3, "latency > 1ms", 1500.0, 1000.0, "us", "yolo", 8, "conv1", 500.0))
    (one,) = found.all
    assert one.rules == ["stage > 8ms", "latency > 1ms", "mark"]
    assert (one.value, one.bound, one.culprit, one.excess_us) == (26_000.0, 8000.0, "preprocess", 18_000.0)
    assert (one.model, one.inference, one.time_us) == (None, 7, 10 * S)
