"""Summaries of a capture in lines, and the options of `record` as values."""

from __future__ import annotations

from typing import Any

from profagent.cli.provenance import summary_lines

SUMMARY: dict[str, Any] = {
    "session": 4,
    "board": "board-1",
    "simulated": False,
    "jobs": ["JOBA", "JOBB"],
    "bytes": 1234,
    "records": {"aicore": 5, "aicpu": 0, "acl_api": 2},
    "events": {"ops": 1200, "ranges": 0, "samples": 7},
    "sampling": {
        "sampled": 96,
        "due": 100,
        "late": 0,
        "never_came": 4,
        "interval": 10,
        "interval_from": "acl.json",
        "keeping": "every 3",
        "kept": 32,
        "passed_over": 64,
    },
    "ledger": {"loss": {}, "note": {"sequence-gap": 3}},
    "earlier": [],
    "kept_losses": [],
    "implausible": [],
    "not_final": [],
    "complete": True,
    "database": "/w/profagent.db",
    "mirror": "/w/mirror/board-1",
}


def test_a_summary_in_lines() -> None:
    assert summary_lines(SUMMARY) == [
        "session 4 of board-1: complete",
        "  JOBs:     JOBA JOBB",
        "  records:  5 aicore, 0 aicpu, 2 acl_api; 1234 bytes",
        "  sources:  1,200 ops, 7 samples",
        "  sampling: captured 96 of 100 due (interval 10, from acl.json); kept 32 of 96 inferences (every 3)",
        "  ledger:   note: sequence-gap (3)",
        "  database: /w/profagent.db",
        "  mirror:   /w/mirror/board-1",
    ]


def test_what_an_earlier_session_fetched_is_told_as_its_own() -> None:
    summary = {**SUMMARY, "earlier": [{"job": "JOBA", "session": 1, "inferences": 1060}]}
    assert "  JOBA: nothing new: 1,060 inferences are there from session 1" in summary_lines(summary)
