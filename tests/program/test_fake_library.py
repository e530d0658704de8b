"""The made-up library answers as the real one did: tests/data/runtime-answers, call by call."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profagent_app.runtime import load
from tests.program.conftest import MODEL

ANSWERS = Path(__file__).parents[1] / "data" / "runtime-answers"
PIPES = sorted((ANSWERS.parent / "pipe").glob("*.bin"))


def test_the_state_machine_call_by_call(
    new_library: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = load(new_library())
    devices = (ctypes.c_uint32 * 1)(0)
    config = raw.svp_acl_prof_create_config(devices, 1, 0, None, 7)
    subscription = raw.svp_acl_prof_create_subscribe_config(1, 0, ctypes.byref(ctypes.c_int(1)))
    calls: dict[str, Callable[..., int]] = {
        "A_init": lambda *_: raw.svp_acl_init(None),
        "A_fini": raw.svp_acl_finalize,
        "P_init": lambda path, length: _init(raw, path, int(length)),
        "P_start": lambda given: raw.svp_acl_prof_start(config if given == "cfg" else None),
        "P_stop": lambda given: raw.svp_acl_prof_stop(config if given == "cfg" else None),
        "P_fini": raw.svp_acl_prof_finalize,
        "S_sub": lambda model, _: raw.svp_acl_prof_model_subscribe(int(model), subscription),
        "S_unsub": lambda model: raw.svp_acl_prof_model_unsubscribe(int(model)),
        "wmode": raw.fake_work_mode,
    }
    played = 0
    for line in (ANSWERS / "state-machine.txt").read_text().splitlines():
        if line == "-- device refuses start":
            raw.svp_acl_init(None)  # not in the answers: the section before ended with svp_acl_finalize
        elif match := re.fullmatch(r"(\w+)\((.*?)\)\s+(\d+)", line):
            name, arguments, answer = match.groups()
            given = [each.strip() for each in arguments.split(",")] if arguments else []
            # The device refused the start of the last section's third JOB.
            raw.fake_refuse_start(int((name, answer) == ("P_start", "500000")))
            assert calls[name](*given) == int(answer), f"{line!r}, call {played}"
            played += 1
    assert played > 50


def _init(raw: ctypes.CDLL, path: str, length: int) -> int:
    if path == "NULL":
        return raw.svp_acl_prof_init(None, length)
    text = {"path": "/tmp/ab", "big": "b" * length}.get(path, path.strip('"'))
    return raw.svp_acl_prof_init(text.encode(), length)


def test_which_configurations_it_makes(raw: ctypes.CDLL) -> None:
    numbers = ctypes.c_uint32 * 2
    refused = [
        (numbers(0, 0), 0, 0, None, 7),
        (numbers(0, 0), 2, 0, None, 7),
        (numbers(1, 0), 1, 0, None, 7),
        (None, 1, 0, None, 7),
        (numbers(0, 0), 1, 1, None, 7),
        (numbers(0, 0), 1, 0, None, 0),
        (numbers(0, 0), 1, 0, None, 0x10),
        (numbers(0, 0), 1, 0, None, 0x1F),
        (numbers(0, 0), 1, 0, 1, 7),
    ]
    answers = (ANSWERS / "state-machine.txt").read_text().split("-- create_config\n")[1].splitlines()[0]
    assert answers.count("(nil)") == len(refused)
    assert [raw.svp_acl_prof_create_config(*each) for each in refused] == [None] * len(refused)


ITEMS = '"aic_metrics": "ArithmeticUtilization", "aicpu": "on", "acl_api": "on"'
PROFILER = '{"profiler": {"switch": "on", "output": "OUT", '
CONFIGS = {
    "all on, no interval": f"{PROFILER}{ITEMS}}}}}",
    'interval "0"': f'{PROFILER}{ITEMS}, "interval": "0"}}}}',
    'interval "9999"': f'{PROFILER}{ITEMS}, "interval": "9999"}}}}',
    'interval "10000"': f'{PROFILER}{ITEMS}, "interval": "10000"}}}}',
    'interval "-1"': f'{PROFILER}{ITEMS}, "interval": "-1"}}}}',
    'interval "5x"': f'{PROFILER}{ITEMS}, "interval": "5x"}}}}',
    'interval " 7"': f'{PROFILER}{ITEMS}, "interval": " 7"}}}}',
    'interval ""': f'{PROFILER}{ITEMS}, "interval": ""}}}}',
    "interval number 5": f'{PROFILER}{ITEMS}, "interval": 5}}}}',
    "bool value elsewhere": f'{PROFILER}{ITEMS}}}, "other": true}}',
    "nested unknown object": f'{PROFILER}{ITEMS}, "more": {{"deep": "yes"}}}}}}',
    "array value": f'{PROFILER}{ITEMS}, "more": ["a", "b"]}}}}',
    'switch "off"': f'{{"profiler": {{"switch": "off", "output": "OUT", {ITEMS}}}}}',
    'switch "ON"': f'{{"profiler": {{"switch": "ON", "output": "OUT", {ITEMS}}}}}',
    "no switch": f'{{"profiler": {{"output": "OUT", {ITEMS}}}}}',
    "no items": f'{PROFILER}"x": "y"}}}}',
    "only aa spellings": f'{PROFILER}"aac_metrics": "ArithmeticUtilization", "aacpu": "on"}}}}',
    "aa spellings + acl_api": f'{PROFILER}"aac_metrics": "ArithmeticUtilization", "aacpu": "on", "acl_api": "on"}}}}',
    'aic_metrics "arithmeticutilization"': f'{PROFILER}"aic_metrics": "arithmeticutilization", "acl_api": "on"}}}}',
    "output not there": '{"profiler": {"switch": "on", "output": "OUT/not/there", "acl_api": "on"}}',
    "output not writable (/proc)": f'{{"profiler": {{"switch": "on", "output": "/proc", {ITEMS}}}}}',
    "no output": f'{{"profiler": {{"switch": "on", {ITEMS}}}}}',
    "empty object": "{}",
    "empty file": "",
    "unbalanced": f"{PROFILER}{ITEMS}",
    "no file": None,
    "pretty printed, tabs, CRLF": f"{PROFILER}{ITEMS}}}}}".replace(", ", ",\r\n\t"),
    "UTF-8 BOM": f"\ufeff{PROFILER}{ITEMS}}}}}",
    "trailing comma": f"{PROFILER}{ITEMS},}},}}",
    "11 MiB": f'{PROFILER}{ITEMS}, "x": "{"y" * (11 << 20)}"}}}}',
}
PLAY = """
import ctypes, sys
raw = ctypes.CDLL(sys.argv[1])
init = raw.svp_acl_init(sys.argv[2].encode())
mode, is_init, channels, interval = raw.fake_work_mode(), raw.fake_is_init(), raw.fake_channels(), raw.fake_interval()
out = sys.argv[3].encode()
prof = raw.svp_acl_prof_init(out, len(out))
start = f" start dev=0 chan={channels} interval={interval} mode=1 model=1" if is_init else " "
print(f"init={init} mode={mode} isinit={is_init} prof_init={prof}", start, sep="|")
"""


def _acl_json_answers() -> Iterator[tuple[str, str]]:
    for line in (ANSWERS / "acl-json.txt").read_text().splitlines():
        label, answer = line[:38].rstrip(), line[38:].strip()
        yield label, answer


@pytest.mark.parametrize(("label", "answer"), list(_acl_json_answers()))
def test_what_each_acl_json_does(label: str, answer: str, compiled: Path, tmp_path: Path) -> None:
    out, here, config = tmp_path / "out", tmp_path / "cwd", tmp_path / "acl.json"
    out.mkdir()
    here.mkdir()
    content = CONFIGS[label]
    if content is not None:
        config.write_bytes(content.replace("OUT", str(out)).encode())
    command = [sys.executable, "-c", PLAY, str(compiled), str(config), str(out)]
    played = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    codes, _, start = played.stdout.strip("\n").partition("|")
    jobs = f"JOBs in output {len(list(out.iterdir()))}, in cwd {len(list(here.iterdir()))}"
    text = f"rc={played.returncode} {codes} | {jobs} |{start}"
    assert re.sub(r"\s+", " ", text).strip() == re.sub(r"\s+", " ", answer).strip()


@pytest.mark.parametrize("line", (ANSWERS / "interval.txt").read_text().splitlines())
def test_which_inferences_an_interval_samples(line: str, new_library: Callable[[], str], tmp_path: Path) -> None:
    interval, busy, pictures, sampled = re.findall(
        r"interval (\d+).* for (\d+) inf.* (\d+) picture.* inference (.*)", line
    )[0]
    raw = load(new_library())
    config = tmp_path / "acl.json"
    settings = (
        f'"switch": "on", "output": "{tmp_path}", "aic_metrics": "ArithmeticUtilization", "interval": "{interval}"'
    )
    config.write_text(f'{{"profiler": {{{settings}}}}}')
    raw.fake_stay_busy(int(busy))
    raw.fake_pictures(int(pictures))
    assert raw.svp_acl_init(str(config).encode()) == 0
    model = ctypes.c_uint32()
    assert raw.svp_acl_mdl_load_from_mem(MODEL, len(MODEL), ctypes.byref(model)) == 0
    for _ in range(16):
        raw.svp_acl_mdl_execute(model, None, None)
    done = tmp_path.glob("JOB*/data/aicore.*.done")
    counts = sorted(int(each.name.split(".")[-2]) for each in done)
    assert [each // int(pictures) for each in counts] == [int(each) for each in sampled.split()]


@pytest.mark.parametrize("pipe", PIPES, ids=lambda pipe: pipe.stem)
def test_the_accessors_answer_as_the_real_ones(pipe: Path, raw: ctypes.CDLL) -> None:
    data, said = pipe.read_bytes(), json.loads(pipe.with_suffix(".json").read_text())
    number = ctypes.c_uint32()
    assert raw.svp_acl_prof_get_op_num(data, len(data), ctypes.byref(number)) == said["op_num_rc"]
    assert number.value == said["op_num"]
    for op in said["ops"]:
        index = op["index"]
        for kind in ("type", "name"):
            length, into = ctypes.c_size_t(0), ctypes.create_string_buffer(300)
            code = getattr(raw, f"svp_acl_prof_get_op_{kind}_len")(data, len(data), index, ctypes.byref(length))
            assert (code, length.value) == (op[f"{kind}_len_rc"], op[f"{kind}_len"])
            code = getattr(raw, f"svp_acl_prof_get_op_{kind}")(data, len(data), index, into, 300)
            assert code == op[f"{kind}_rc"]
            if code == 0:
                assert into.raw[: length.value].decode() == op[f"{kind}_written"]
        for field, function in (
            ("start", "op_start"),
            ("end", "op_end"),
            ("duration", "op_duration"),
            ("model_id",) * 2,
        ):
            assert getattr(raw, f"svp_acl_prof_get_{function}")(data, len(data), index) == op[field]
    past = said["index_past_end"]
    assert raw.svp_acl_prof_get_op_start(data, len(data), number.value) == past["start"]
    assert raw.svp_acl_prof_get_model_id(data, len(data), number.value) == past["model_id"]
