"""What every view says of a JOB, and `record` and `watch` of a board; without what depends on time or machine.

`python -m tests.golden.write_views` in the checkout writes the files anew; the difference is for a person to read.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from profagent.importing.importing import import_job
from tests.golden.write_exports import NAMES, job_copy
from tests.integration.board import running, simulated
from tests.integration.host import is_event, profagent, started

GOLDEN = Path(__file__).parent / "views"
INFERENCES = 3
SHOWN_ROWS = 200

# Of the machine, of the moment, or numbers that the database gives by itself.
_LEFT_OUT = {
    "session", "board", "hostname", "source", "address", "daemon_version", "started_us", "ended_us", "cleared_us",
    "inference",
}  # fmt: skip
# What of an event depends on when it comes: a call may come before its inference is told, or after.
_OF_THE_MOMENT = {"simulated", "sampled", "due", "state", "latency_us", "latency_from", "share"}


def views_of(name: str, folder: Path) -> str:
    """Import a copy of a sample; every row of every view, or their number and digest where they are many."""
    database = asyncio.run(import_job(job_copy(name, folder))).database
    with closing(sqlite3.connect(database)) as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'view' ORDER BY name")]
        return _text({view: _view(db, view) for view in names})


def _view(db: sqlite3.Connection, view: str) -> dict[str, Any]:
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({view})") if row[1] not in _LEFT_OUT]
    lines = sorted(json.dumps(row) for row in db.execute(f"SELECT {', '.join(columns)} FROM {view}"))
    if len(lines) <= SHOWN_ROWS:
        return {"columns": columns, "rows": [json.loads(line) for line in lines]}
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"columns": columns, "number": len(lines), "sha256": digest}


def said_of_a_board(folder: Path) -> str:
    """What `watch --json --records` and then `record --json` say of a board on which a JOB comes into being."""
    root = folder / "root"
    root.mkdir()
    made = simulated(folder / "made", INFERENCES, model="yolov5s", layers=4, pictures=2, seed=5)
    for directory in (made, made / "data"):
        os.utime(directory)
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--json")
        with started("watch", *arguments, "--from-start", "--records") as host:
            host.err.until("watching")
            made.rename(root / made.name)
            host.out.until(is_event("inference"), INFERENCES)
            host.out.until(lambda line: '"svp_acl_mdl_unload"' in line)
            watched = host.interrupt()
        recorded = profagent("record", *arguments, "--backlog", "--until-finished", "--workspace", folder / "workspace")
    assert (watched.code, recorded.code) == (0, 0), watched.err + recorded.err
    return _text({"watch": _watched(watched.out), "record": _recorded(recorded.document)})


def _watched(lines: str) -> dict[str, Any]:
    events = [json.loads(line) for line in lines.splitlines()]
    told = [_without(event, _OF_THE_MOMENT) for event in events if event["event"] in {"inference", "record"}]
    return {
        "keys": dict(sorted({_kind(event): sorted(event) for event in events}.items())),
        "number": dict(sorted(Counter(_kind(event) for event in events if event["event"] != "job").items())),
        "rows": sorted(told, key=json.dumps),
        "summary": events[-1],
    }


def _kind(event: dict[str, Any]) -> str:
    return " ".join(event[key] for key in ("event", "unit") if key in event)


def _recorded(summary: dict[str, Any]) -> dict[str, Any]:
    places = {"board", "hostname", "mirror", "database", "coverage"}
    return {"keys": sorted(summary), "summary": _without(summary, places)}


def _without(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    found = {name: value for name, value in fields.items() if name not in names}
    if "slowest" in found:
        found["slowest"] = [_without(layer, names) for layer in found["slowest"]]
    return found


def _text(document: dict[str, Any]) -> str:
    """JSON with a line for each row."""
    return _lines(document, "") + "\n"


def _lines(value: Any, indent: str) -> str:
    inner = indent + " "
    if isinstance(value, dict) and any(isinstance(each, (dict, list)) for each in value.values()):
        each_of = (f"{inner}{json.dumps(name)}: {_lines(each, inner)}" for name, each in value.items())
        return "{\n" + ",\n".join(each_of) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        return "[\n" + ",\n".join(inner + json.dumps(each) for each in value) + f"\n{indent}]"
    return json.dumps(value)


def write_all() -> None:
    """Replace every golden file."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir()
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            (GOLDEN / f"{name}.json").write_text(views_of(name, Path(folder)), "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        (GOLDEN / "board.json").write_text(said_of_a_board(Path(folder)), "utf-8")


if __name__ == "__main__":
    write_all()
