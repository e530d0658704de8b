"""A JOB that is followed while it comes into being, in any order."""

from __future__ import annotations

from pathlib import Path

from tests.integration.board import GrowingJob, batched_network, content, eventually, mirrored, running, simulated
from tests.integration.host import started
from tests.integration.rows import imported_rows, link_ledger, query, rows_of

STEPS_BETWEEN_LOOKS = 40
OTHER_CLOCK = b'{"DeviceInfo": [{"aic_frequency": "500"}]}'


def test_pieces_in_any_order_make_the_same_rows(root: Path, tmp_path: Path) -> None:
    source = simulated(tmp_path / "source", 3, model=batched_network(tmp_path), pictures=5)
    name, workspace = source.name, tmp_path / "workspace"
    database = workspace / "profagent.db"
    with (
        running("--root", root) as daemon,
        started("record", "--board", daemon.address, "--workspace", workspace) as host,
    ):
        host.err.until("recording")
        job = GrowingJob(source, root, 2)

        def is_held() -> bool:
            return eventually(lambda: mirrored(workspace, name) == job.content)

        dones = [path for path in job.paths("data/*.done") if "acl_api" not in path]
        job.write("info.json.0", OTHER_CLOCK)
        for path in dones[::2]:
            job.write(path)  # before its data
        for part in (0, 1):
            for step, _ in enumerate(job.grow(job.paths("data/*")[part::2])):
                if step % STEPS_BETWEEN_LOOKS == 0:
                    assert is_held()
            job.write("info.json.0")  # rewritten, with another clock
        for path in (*job.paths("*"), *dones[1::2], *job.paths("data/acl_api*.done")):
            job.write(path)
        assert is_held()
        assert eventually(lambda: query(database, "SELECT state FROM job") == [("finished",)])
        imported = imported_rows(job.directory, tmp_path / "imported")
        eventually(lambda: rows_of(database, name) == imported)
        assert host.interrupt().code == 0
    assert rows_of(database, name) == imported
    assert mirrored(workspace, name) == job.content == content(source)
    assert link_ledger(database, name) == []
