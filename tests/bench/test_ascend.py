"""Import of other tools' results beside readers that keep nothing: pandas, csv and json."""

from __future__ import annotations

import sqlite3
import statistics
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.bench.measure import CHECKOUT, PROFAGENT, Run, report, run, size_text, spread
from tests.unit.ascend.files import OP_SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

REPEATS = 3
ROWS = 200_000
EVENTS = 300_000
TASKS = 1_000_000
FIRST_US = 1_787_504_007_005_868
# pandas is in the environment of what nothing that runs needs.
PANDAS = CHECKOUT / ".venv-bench/bin/python"
READ_CSV = "import sys, pandas; pandas.read_csv(sys.argv[1])"
# What reads each row into texts; an import that reads rows cannot be faster.
CSV_READER = "import csv, sys; [None for row in csv.reader(open(sys.argv[1], newline=''), strict=True)]"
JSON_LOAD = "import sys, json; json.load(open(sys.argv[1]))"
KERNEL_DETAILS = (
    "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,"
    "Input Shapes,Output Shapes,Context ID,aicore_time(us),aic_total_cycles,aic_mac_ratio,aic_mte2_ratio,aiv_vec_ratio"
)


def _times(place: int) -> str:
    """Start and duration, as profilers write them."""
    return f"{FIRST_US + 10 * place}.315\t,{4 + place % 7}.{place % 1000:03}"


def _op_summary(place: int) -> str:
    shape = '"""512,16"""'
    return (
        f"0,4294967295,{place % 65536},46,conv{place % 400},Conv2D,dynamic,AI_CORE,{_times(place)},"
        f"0.000000,8,0,NO,{shape},FLOAT,ND,{shape},FLOAT,ND,N/A,4.1,100,0.5,0.1,0.25,0.125,0.0"
    )


def _kernel_details(place: int) -> str:
    return (
        f'{place // 1000},conv{place % 400},Conv2D,AI_CORE,{_times(place)},0,8,0,"""512,16""",'
        f'"""512,16""",N/A,4.1,100,0.5,0.25,0.0'
    )


def _event(place: int) -> str:
    time = f'"ts":"{FIRST_US + 10 * place}.315"'
    kind = place % 3
    if kind == 0:
        args = '{"Model Id":4294967295,"Task Type":"AI_CORE","Physic Stream Id":49,"Task Id":3,"connection_id":94}'
        return f'{{"name":"conv{place % 400}","pid":1,"tid":49,{time},"dur":4.25,"ph":"X","args":{args}}}'
    if kind == 1:
        args = '{"Thread Id":49,"Mode":"ACL_OP","level":"acl","id":"aclrtMalloc","connection_id":94}'
        return f'{{"name":"AscendCL@aclrtMalloc","pid":2,"tid":49,{time},"dur":4.25,"ph":"X","args":{args}}}'
    return (
        f'{{"name":"HostToDevice{place}","ph":"s","cat":"HostToDevice","id":"{place << 32}","pid":2,"tid":49,{time}}}'
    )


def _lines(header: str, rows: Iterator[str], end: str = "\n") -> Iterator[str]:
    yield header
    yield from (f"{row}{end}" for row in rows)


@pytest.mark.parametrize(("name", "header"), [("op_summary", OP_SUMMARY), ("kernel_details", KERNEL_DETAILS)])
def test_import_of_a_summary(name: str, header: str, root: Path) -> None:
    file = root / f"{name}.csv"
    row_of = _op_summary if name == "op_summary" else _kernel_details
    with file.open("w") as out:
        out.writelines(_lines(f"{header}\n", map(row_of, range(ROWS))))
    beside = {"pandas.read_csv": [str(PANDAS), "-c", READ_CSV]} if PANDAS.exists() else {}
    beside["csv.reader"] = [PROFAGENT[0], "-c", CSV_READER]
    _measure(f"import of {name}.csv", file, ROWS, "rows", beside)


def test_import_of_a_timeline(root: Path) -> None:
    file = root / "msprof_1.json"
    names = ("Ascend Hardware", "CANN")
    with file.open("w") as out:
        out.write("[")
        for pid, name in enumerate(names, 1):
            out.write(f'{{"name":"process_name","pid":{pid},"tid":0,"ph":"M","args":{{"name":"{name}"}}}},')
        out.write(",".join(map(_event, range(EVENTS))))
        out.write("]")
    _measure("import of msprof_*.json", file, EVENTS, "events", {"json.load": [PROFAGENT[0], "-c", JSON_LOAD]})


def test_import_of_a_database(root: Path) -> None:
    file = root / "msprof_1.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("""
            CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
            CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER,
                globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER,
                taskId INTEGER, modelId INTEGER);
            CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockNum INTEGER,
                taskType INTEGER, opType INTEGER);
        """)
        connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", ((each, f"conv{each}") for each in range(400)))
        starts = ((place, FIRST_US * 1000 + place * 10_000) for place in range(TASKS))
        connection.executemany(
            "INSERT INTO TASK VALUES (?2, ?2 + 4250, 0, ?1, ?1, 1, 1, 0, 5, ?1 % 65536, 4294967295)", starts
        )
        connection.executemany(
            "INSERT INTO COMPUTE_TASK_INFO VALUES (?, ?, 8, 1, 2)", ((each % 400, each) for each in range(TASKS))
        )
        connection.commit()
    _measure("import of msprof_*.db", file, TASKS, "tasks", {})


def _measure(title: str, file: Path, count: int, unit: str, beside: Mapping[str, Sequence[str]]) -> None:
    """In turns: a machine that is shared is not the same from minute to minute.

    What each takes for a file of one row is its start, and not counted in its rate.
    """
    one = file.parent / "one.json" if file.suffix == ".json" else file.parent / "one.csv"
    one.write_text(f"[{_event(0)}]" if file.suffix == ".json" else f"{OP_SUMMARY}\n{_op_summary(0)}\n")
    commands = {"import": [*PROFAGENT, "import"], **beside}
    starts: dict[str, list[Run]] = {name: [] for name in commands}
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(REPEATS):
        for name, command in commands.items():
            for kept, of in ((starts, one), (runs, file)):
                workspace = ["--workspace", f"{of}-{number}.workspace"] if name == "import" else []
                kept[name].append(run(*command, of, *workspace))
    figures = {
        "file": size_text(file.stat().st_size),
        "processor time": spread([each.cpu_s for each in runs["import"]], "s"),
        "of it to start": spread([each.cpu_s for each in starts["import"]], "s"),
        "wall clock": spread([each.wall_s for each in runs["import"]], "s"),
    }
    for name, ended in runs.items():
        for how, taken in (("by processor time", "cpu_s"), ("by the clock", "wall_s")):
            start = statistics.median(getattr(each, taken) for each in starts[name])
            rates = [count / (getattr(each, taken) - start) / 1000 for each in ended]
            figures[f"{name}: {unit}, {how}"] = spread(rates, "thousand/s")
        figures[f"{name}: peak RSS"] = size_text(max(each.peak_bytes for each in ended))
    report(title, figures)
