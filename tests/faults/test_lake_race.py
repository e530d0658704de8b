"""Writers of a lake may be killed at any moment, and readers see each session whole, once, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.host import ENVIRONMENT

KILLS, READINGS = 8, 6


def test_what_is_killed_harms_no_reader_and_no_session(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.lake_race", str(tmp_path), str(KILLS), str(READINGS)]
    here = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=here, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    race = json.loads(ended.stdout)
    assert (race["wrong"], race["missing"], race["left_over"]) == ([], [], 0)
    assert (race["kills"] >= KILLS, race["readings"] >= READINGS, race["sessions"] > 1) == (True, True, True)
