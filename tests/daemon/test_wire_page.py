"""The client in the page about the wire works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.daemon.daemon_process import AICORE_DONE, environment, make_job, running

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "wire.md"


def test_the_pages_client_follows_a_job_to_its_end(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    for name, content in (
        ("aicore.0.m.3.0.1.1.0", bytes(700_000)),
        ("aicore.0.m.3.0.1.1.0.done", AICORE_DONE % 700_000),
    ):
        (job / "data" / name).write_bytes(content)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    with running("--root", tmp_path) as daemon:
        program = program.replace("127.0.0.1:50151", daemon.address)
        program = program.replace(
            "                await call.write(wire.ClientMessage(acknowledge=wire.Acknowledge(logs=durable)))",
            "                await call.write(wire.ClientMessage(acknowledge=wire.Acknowledge(logs=durable)))\n"
            "                print(sum(map(len, copies.values())), len(durable), flush=True)",
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment(), stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            total = sum(path.stat().st_size for path in job.rglob("*") if path.is_file())
            completions = 0
            for line in process.stdout:
                size, completed = map(int, line.split())
                completions += completed
                if size == total and completions == 3:
                    break
            else:
                raise AssertionError("it ended before it had everything")
        finally:
            process.kill()
            process.communicate()
