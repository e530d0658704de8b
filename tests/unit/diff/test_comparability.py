"""Which runs `diff` compares: pairs that must not be compared yield no difference of the figures concerned."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.tables.comparability import RULES, Difference, allowed_codes
from tests.unit.store.database import START_US, DatabaseBuilder

if TYPE_CHECKING:
    from pathlib import Path

LAYERS = ("conv1", "relu", "pool", "fc1")
OTHERS = ("matmul1", "norm", "softmax", "add1")
EVERYTHING = {"latency", "sum", "layers", "calls", "counters"}
CALLS = ["--fail-if", "api.median>+5%"]
ALL_BLOCKED: set[str] = set()


def _run(
    builder: DatabaseBuilder,
    *,
    factor: int = 1,
    board: int = 1,
    mhz: int = 700,
    interval: int | None = 1,
    family: str | None = None,
    batch: int = 1,
    layers: tuple[str, ...] = LAYERS,
    has_calls: bool = True,
    loss: bool = False,
    **values: Any,
) -> int:
    """Six inferences, whose layers and calls take `factor` times as long as those of the base."""
    about = {"counter_map": "m", "counter_map_digest": "d1", "sdk_version": "1.0", "ended_us": START_US, **values}
    session = builder.session(board=board, **about)
    job = builder.job(session, name=f"JOB{session}", frequency_mhz=mhz, family=family)
    model = builder.model(job, layers=layers)
    builder.insert("sampling", model=model, session=session, sampled=6, passed_over=0, interval=interval, due=6, late=0)
    for pic in range(6):
        start_us = START_US + 100_000 * pic
        times = {"start_us": start_us, "end_us": start_us + 60 * factor, "batch_num": batch}
        inference = builder.inference(session, model, pic, **times)
        part = builder.new_part(session, model, "aicore")
        counters: list[tuple[float | None, ...]] = [
            (0.5,) * 6 + (0.2 * factor + pic / 10_000,) + (0.1,) * 3 for _ in layers
        ]
        ticks = [factor * mhz // 100 * (10 + at) for at in range(len(layers))]
        builder.aicore(inference, part, ticks, start_us=start_us, counters=counters)
    if has_calls:
        part = builder.new_part(session, model, "acl_api")
        builder.calls(part, [(3, 100_000 * pic + 1, 100_000 * pic + 1 + 70 * factor) for pic in range(6)])
    if loss:
        builder.ledger(session, "loss", "torn-record", 2)
    return session


CASES: dict[str, tuple[dict[str, Any], str, set[str], list[str], list[str]]] = {
    # What differs from the base; the verdict; which differences are shown; codes of --allow; rules that block.
    "alike": ({}, "comparable", EVERYTHING, [], []),
    "simulated": ({"simulated": 1}, "not comparable", ALL_BLOCKED, [], ["simulated"]),
    "simulated, allowed": ({"simulated": 1}, "comparable", EVERYTHING, ["simulated"], ["simulated"]),
    "another device": ({"family": "ascend"}, "not comparable", ALL_BLOCKED, [], ["device"]),
    "another board model": ({"board": 2}, "not comparable", ALL_BLOCKED, [], ["board-model"]),
    "another board model, another rule allowed": (
        {"board": 2},
        "not comparable",
        ALL_BLOCKED,
        ["npu-clock"],
        ["board-model"],
    ),
    "another board": ({"board": 3}, "comparable", EVERYTHING, [], []),
    "another clock": ({"mhz": 800}, "not comparable", ALL_BLOCKED, [], ["npu-clock"]),
    "another clock, allowed": ({"mhz": 800}, "comparable", EVERYTHING, ["npu-clock"], ["npu-clock"]),
    "another batch": ({"batch": 4}, "not comparable", ALL_BLOCKED, [], ["batch"]),
    "another network": ({"layers": OTHERS}, "not comparable", ALL_BLOCKED, [], ["model"]),
    "another network, allowed": (
        {"layers": OTHERS},
        "comparable",
        EVERYTHING - {"layers", "counters"},
        ["model"],
        ["model"],
    ),
    "one layer more": ({"layers": (*LAYERS, "add1")}, "comparable", EVERYTHING, [], []),
    "another interval": ({"interval": 10}, "in part", {"sum", "layers", "counters"}, [], ["interval"]),
    "another interval, allowed": ({"interval": 10}, "comparable", EVERYTHING, ["interval"], ["interval"]),
    "an unknown interval": ({"interval": None}, "comparable", EVERYTHING, [], []),
    "calls on one side": ({"has_calls": False}, "in part", {"sum", "layers", "counters"}, [], ["recorded"]),
    "another counter map": ({"counter_map_digest": "d2"}, "in part", EVERYTHING - {"counters"}, [], ["counter-map"]),
    "another SDK": ({"sdk_version": "2.0"}, "comparable", EVERYTHING, [], []),
    "a loss": ({"loss": True}, "comparable", EVERYTHING, [], []),
    "another interval and counter map": (
        {"interval": 10, "counter_map_digest": "d2"},
        "in part",
        {"sum", "layers"},
        [],
        ["interval", "counter-map"],
    ),
    "another clock and interval, one allowed": (
        {"mhz": 800, "interval": 10},
        "not comparable",
        ALL_BLOCKED,
        ["interval"],
        ["npu-clock", "interval"],
    ),
}


def _shown(document: dict[str, Any]) -> set[str]:
    """Name the kinds of differences that a document has."""
    found = {"calls"} if document["calls"] else set()
    for model in document["models"]:
        changes = [layer["change"] for layer in model["layers"] if layer["change"]]
        found |= {"sum"} | ({"layers"} if changes else set()) | ({"latency"} if model["latency"] else set())
        found |= {"counters"} if any(change["counters"] for change in changes) else set()
    return found


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base as session 1, and a slower run for each case."""
    folder = tmp_path_factory.mktemp("pairs")
    builder = DatabaseBuilder(folder / "profagent.db")
    builder.insert("board", identity="other-model", hostname="newton", model="SS927")
    builder.insert("board", identity="other-board", hostname="gauss", model="SS928")
    _run(builder)
    for differing, *_ in CASES.values():
        _run(builder, factor=2, **differing)
    builder.close()
    return folder


@pytest.mark.parametrize("case", CASES)
def test_a_pair_yields_the_differences_that_may_be_formed(
    workspace: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = 2 + list(CASES).index(case)
    _, verdict, shown, allowed, blocking = CASES[case]
    words = ["diff", "1", str(session), "--workspace", str(workspace), *CALLS]
    words += [word for code in allowed for word in ("--allow", code)]
    code = run([*words, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["comparability"]["verdict"] == verdict
    assert _shown(document) == shown
    (condition,) = document["conditions"]
    # A condition on blocked figures is not judged, and the exit code says so.
    assert condition["holds"] == ("calls" in shown)
    assert (code == 4) == ("calls" not in shown)
    found = {each["code"]: each["allowed"] for each in document["comparability"]["differences"]}
    assert [code for code in found if RULES[code].blocks] == blocking
    assert {each for each, is_allowed in found.items() if is_allowed} == {*allowed} & {*found}
    run([*words, "--markdown"])
    text = capsys.readouterr().out
    assert text.startswith(f"**{'comparable' if verdict != 'not comparable' else 'not comparable'}")
    if not shown:
        assert "%" not in text.partition("cannot tell")[0]
        assert "| conv1 |" not in text


def test_every_rule_that_blocks_has_a_case() -> None:
    assert {code for *_, codes in CASES.values() for code in codes} == {
        rule.code for rule in RULES.values() if rule.blocks
    }


def test_a_code_that_blocks_nothing_cannot_be_allowed() -> None:
    with pytest.raises(UsageError, match="'sdk' is not the code of a rule that blocks"):
        allowed_codes(["sdk"])


@pytest.mark.parametrize(
    ("code", "base", "said"),
    [
        ("batch", "batch 1 of 4 pictures", "batch 1 of 4 pictures"),
        ("simulated", "measured", "measured"),
        ("model", "12", "another model of 12 layers"),
        ("npu-clock", "700 MHz", "npu-clock 700 MHz"),
    ],
)
def test_the_value_of_the_base_says_once_what_it_is(code: str, base: str, said: str) -> None:
    assert Difference(RULES[code], None, "", base).of_base() == said
