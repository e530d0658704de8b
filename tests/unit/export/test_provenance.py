"""What a result says about itself: where it is from, what is missing, what is not verified."""

from __future__ import annotations

import json

from profagent import __version__
from profagent.cli.provenance import (
    SIMULATED,
    UNVERIFIED,
    describe_provenance,
    ledger_counts,
    likely_counters,
    pmu_remark,
)
from profagent.store.queries import LedgerRow
from tests.unit.export.rows import scope

SAMPLING = {"sampled": 9, "due": 10, "passed_over": 0}


def test_it_names_session_board_job_and_version() -> None:
    found = describe_provenance(scope(), [], SAMPLING)
    assert (found["session"], found["board"], found["job"], found["frequency_mhz"]) == (7, "0ddba11", "JOBA", 700)
    assert (found["profagent"], found["sampling"]) == (__version__, SAMPLING)
    assert json.loads(json.dumps(found)) == found


def test_the_ledger_is_by_grade_and_reason_and_says_that_nothing_is_missing() -> None:
    assert ledger_counts([]) == {"loss": {}, "note": {}}
    rows = [LedgerRow("loss", "torn", 1), LedgerRow("note", "gap", 2), LedgerRow("note", "late", 3)]
    assert ledger_counts(rows) == {"loss": {"torn": 1}, "note": {"gap": 2, "late": 3}}


def test_what_is_not_verified_is_said() -> None:
    assert describe_provenance(scope(), [], SAMPLING)["unverified"] == list(UNVERIFIED)


def test_simulated_figures_are_said_to_be_invented_before_anything_else() -> None:
    found = describe_provenance(scope(simulated=True), [], SAMPLING)
    assert found["simulated"] is True
    assert found["unverified"][0] == SIMULATED


def test_the_remark_on_pmu_columns_names_the_map_or_its_absence() -> None:
    assert "no counter map" in pmu_remark(None)
    assert "'calibrated-b2'" in pmu_remark("calibrated-b2")


def test_counters_that_the_map_is_not_certain_of_are_named() -> None:
    found = scope(counter_map="m")
    learnt = found._replace(session=found.session._replace(counter_map_likely="dld,wld"))
    described = describe_provenance(learnt, [], SAMPLING)
    assert described["pmu"].endswith(", and it is not certain of dld, wld")
    assert likely_counters([described, describe_provenance(found, [], SAMPLING), {}]) == ["dld", "wld"]
