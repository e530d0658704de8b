"""One `record` and several boards: each has its session, and none waits for another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from profagent.tables.provenance import several_lines
from tests.fakes.ports import own_port
from tests.integration.board import content, eventually, running, sample, simulated
from tests.integration.host import Ended, profagent, started
from tests.integration.rows import imported_rows, query, rows_of, so_far

NAMES = ("alpha", "beta", "gamma")
FAST = ("--quiet-after", "0.3")
# Asked to end, a simulated board finishes its JOB first.
SIMULATION = ("--simulate", "--rate", "20", "--for", "300", "--model", "mobilenetv2", "--layers", "20")


@pytest.fixture
def roots(tmp_path: Path) -> dict[str, Path]:
    """A root for each board."""
    found = {name: tmp_path / name for name in NAMES}
    for root in found.values():
        root.mkdir()
    return found


def boards(*addresses: str) -> list[str]:
    return [word for address in addresses for word in ("--board", address)]


def of_board(ended: Ended, address: str) -> dict[str, Any]:
    (found,) = (each for each in ended.document["boards"] if each["address"] == address)
    return dict(found)


def check(root: Path, workspace: Path, board: str, *, is_over: bool = True) -> None:
    """The board's one JOB is in its own mirror, and its rows are those of an import, which takes every JOB as over."""
    (job,) = root.iterdir()
    assert content(workspace / "mirror" / board / job.name) == content(job)
    rows = rows_of(workspace / "profagent.db", job.name)
    expected = imported_rows(job, workspace / f"imported-{board}")
    if not is_over:
        del rows["ledger"], expected["ledger"]
    assert rows == expected
    assert rows["inferences"]


def ended_sessions(workspace: Path) -> int:
    return len(so_far(workspace / "profagent.db", "SELECT 1 FROM session WHERE ended_us IS NOT NULL"))


def are_followed(workspace: Path, *names: str) -> bool:
    """Wait until records of these boards have come: a JOB that ends before is not waited for."""
    return eventually(lambda: all(any(workspace.glob(f"mirror/{name}/JOB*/data/aicore*")) for name in names))


def test_one_that_is_away_for_a_time_and_one_for_good_hold_up_nobody(roots: dict[str, Path], tmp_path: Path) -> None:
    workspace, late = tmp_path / "workspace", f"127.0.0.1:{own_port()}"
    # Its calls are not complete: the JOB stays open.
    gone = simulated(roots["gamma"], 6)
    next((gone / "data").glob("acl_api*.done")).unlink()
    with (
        running("--root", roots["alpha"], *SIMULATION, "--seed", "1") as first_npu,
        running("--root", roots["beta"], *SIMULATION, "--seed", "2") as second_npu,
        running("--root", roots["alpha"], "--identity", "alpha") as alpha,
        running("--root", roots["gamma"], "--identity", "gamma") as gamma,
    ):
        addresses = (alpha.address, late, gamma.address)
        with started("record", *boards(*addresses), "--workspace", workspace, "--until-finished", "--json") as host:
            host.err.until(f"{alpha.address}: recording")
            host.err.until(f"{late}: cannot reach")
            for _ in range(2):
                with running("--root", roots["beta"], "--identity", "beta", listen=late) as beta:
                    host.err.until(f"{late}: recording")
                    time.sleep(0.3)
                    beta.process.kill()
                    beta.process.wait()
            mirrored = workspace / "mirror" / "gamma" / gone.name
            assert eventually(lambda: mirrored.exists() and content(mirrored) == content(gone))
            gamma.process.kill()
            with running("--root", roots["beta"], "--identity", "beta", listen=late):
                assert are_followed(workspace, "alpha", "beta")
                assert (first_npu.stop(), second_npu.stop()) == (0, 0)
                assert eventually(lambda: ended_sessions(workspace) == 2)
                assert host.process.poll() is None, "a board that is away is waited for"
                ended = host.interrupt()
    assert ended.code == 4, ended.err
    for name, address in zip(NAMES, addresses, strict=True):
        outcome = of_board(ended, address)
        is_gone = name == "gamma"
        assert (outcome["session"]["board"], outcome["complete"]) == (name, not is_gone)
        assert (outcome["error"] is not None, outcome["exit_code"]) == (is_gone, 4 if is_gone else 0)
        check(roots[name], workspace, name, is_over=name != "gamma")
    total = ended.document["total"]
    assert (total["boards"], total["reached"], total["jobs"], total["complete"]) == (3, 3, 3, False)
    assert total["records"]["aicore"] == query(workspace / "profagent.db", "SELECT count(*) FROM aicore")[0][0]


def test_one_that_is_never_reached_is_exit_code_3_and_harms_no_other(roots: dict[str, Path], tmp_path: Path) -> None:
    sample(roots["alpha"], "runtime-api")
    nobody, workspace = f"127.0.0.1:{own_port()}", tmp_path / "workspace"
    with running("--root", roots["alpha"], *FAST) as alpha:
        arguments = ("--workspace", workspace, "--backlog", "--until-finished", "--json")
        with started("record", *boards(nobody, alpha.address), *arguments) as host:
            assert eventually(lambda: ended_sessions(workspace) == 1)
            ended = host.interrupt()
    assert (ended.code, ended.document["total"]["exit_code"], ended.document["total"]["reached"]) == (3, 3, 1)
    missing = of_board(ended, nobody)
    assert (missing["session"], missing["exit_code"], missing["complete"]) == (None, 3, False)
    assert "cannot reach" in missing["error"]
    assert of_board(ended, alpha.address)["complete"] is True
    text = "\n".join(several_lines(ended.document))
    assert f"{nobody}: cannot reach the board" in text
    assert "INCOMPLETE; 1 of 2 boards reached" in text


def test_two_addresses_of_one_identity_are_refused(roots: dict[str, Path], tmp_path: Path) -> None:
    for name, job in (("alpha", "runtime-api"), ("beta", "runtime-edge")):
        sample(roots[name], job)
    with (
        running("--root", roots["alpha"], "--identity", "twin", *FAST) as alpha,
        running("--root", roots["beta"], "--identity", "twin", *FAST) as beta,
    ):
        arguments = ("--workspace", tmp_path / "workspace", "--backlog", "--until-finished", "--json")
        ended = profagent("record", *boards(alpha.address, beta.address), *arguments)
    first, second = sorted(ended.document["boards"], key=lambda each: each["session"] is None)
    assert (ended.code, first["session"]["session"], second["session"], second["exit_code"]) == (2, 1, None, 2)
    assert "has the identity of the one at" in second["error"]
    assert "board-id" in ended.err
    assert first["session"]["jobs"] != []
    assert query(tmp_path / "workspace" / "profagent.db", "SELECT count(*) FROM session") == [(1,)]


def test_a_job_of_another_soc_ends_its_board_and_no_other(roots: dict[str, Path], tmp_path: Path) -> None:
    sample(roots["alpha"], "runtime-api")
    other = sample(roots["beta"], "runtime-api")
    (other / "info.json.0").write_bytes(b'{"DeviceInfo": [{"aic_frequency": "594", "magic_num": "6A6A"}]}')
    with (
        running("--root", roots["alpha"], "--identity", "alpha", *FAST) as alpha,
        running("--root", roots["beta"], "--identity", "beta", *FAST) as beta,
    ):
        arguments = ("--workspace", tmp_path / "workspace", "--backlog", "--until-finished", "--json")
        ended = profagent("record", *boards(alpha.address, beta.address), *arguments)
    assert ended.code == 2
    assert of_board(ended, alpha.address)["complete"] is True
    assert "Hi3519DV500" in of_board(ended, beta.address)["error"]
