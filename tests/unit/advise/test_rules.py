"""The rules as data: what a file must hold, and what each of ours finds in rows that were made for it."""

from __future__ import annotations

import random
import sqlite3
import string
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profagent.advise.advise import MEANS
from profagent.advise.rules import Rule, own_rules, rules_with
from profagent.errors import UsageError
from profagent.formats.countermap import RATIOS, bound_by
from profagent.stats.figures import figures_of

RULES = {rule.id: rule for rule in own_rules()}
GOOD = """
id = "many-layers"
severity = "low"
kind = "Computation"
manual = "ours"
needs = ["times"]
sql = "SELECT model, count(*) AS layers, NULL AS gain_us FROM layer_means GROUP BY model HAVING layers > :most"
[thresholds]
most = 1
[en]
title = "{model} has {layers} layers"
finding = "More than {most:g}; gain {gain_us:.1f}."
advice = "Fewer."
[zh]
title = "{model} 有 {layers} 层"
finding = "超过 {most:g}。"
advice = "减少。"
"""
LAYER = {"model": "m", "unit": "AA_CORE", "segment": 0, "layer_index": 0, "layer_name": "a", "layer_type": "Conv"}
# What the rules read of the views.
VIEWS = """
CREATE TABLE inferences (session, model, start_us, end_us, figures, cache_hit, cache_miss);
CREATE TABLE api_records (session, model, name, type, duration_us);
CREATE TABLE sessions (session, sampled, due);
CREATE TABLE metrics (session, name, unit, time_us, value);
"""


class Rows:
    """Rows that rules are tried on."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.row_factory = sqlite3.Row
        connection.executescript(MEANS + VIEWS)

    def put(self, table: str, **values: Any) -> None:
        columns, marks = ", ".join(values), ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(values.values()))

    def layer(self, us: float, **values: Any) -> None:
        self.put("layer_means", **{**LAYER, "us": us, "share": 10.0, **values})

    def layers(self, *types: str, us: float = 100.0) -> None:
        """One after the other, and the model that they make."""
        for place, kind in enumerate(types):
            self.layer(us, layer_index=place, layer_name=f"l{place}", layer_type=kind)
        self.put("model_means", model="m", inferences=10, us=us * len(types), npu_us=us * len(types), cpu_us=0.0)

    def found(self, rule: Rule) -> list[dict[str, Any]]:
        return [dict(row) for row in self._connection.execute(rule.sql, {"session": 1, **rule.thresholds})]


@pytest.fixture
def rows() -> Iterator[Rows]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield Rows(connection)


def _folder(folder: Path, text: str, name: str = "mine.toml") -> Path:
    (folder / name).write_text(text, "utf-8")
    return folder


def test_a_rule_of_a_folder_comes_beside_ours_or_in_the_place_of_one(tmp_path: Path) -> None:
    _folder(tmp_path, GOOD)
    _folder(tmp_path, GOOD.replace("many-layers", "transform"), "other.toml")
    found = {rule.id: rule for rule in rules_with([tmp_path])}
    assert found.keys() == {*RULES, "many-layers"}
    assert found["transform"].manual == "ours"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("severity = ", "graveness = "), "graveness"),
        (('"low"', '"grave"'), "$.severity`; write 'high' or 'info' or 'low' or 'medium'"),
        (("most = 1", 'most = "1"'), "$.thresholds"),
        (
            ('"times"', '"luck"'),
            "$.needs[0]`; write 'calls' or 'metrics' or 'other' or 'ss928' or 'steps' or 'times'",
        ),
        (("SELECT model", "DELETE"), "sql"),
        (('needs = ["times"]', 'needs = ["times"]\ncounters = ["mac"]'), "'mac' is none; write 'mac_busy' or"),
        (('"many-layers"', '"Many Layers"'), "id"),
        (("[zh]", "[de]"), "de"),
        (("[en]", "[en"), "line"),
    ],
)
def test_a_bad_rule_names_its_file_and_key(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    _folder(tmp_path, GOOD.replace(*change))
    with pytest.raises(UsageError, match=r"mine\.toml") as error:
        rules_with([tmp_path])
    assert said in str(error.value)
    assert "docs/howto/advice.md" in error.value.hint


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the rules"):
        rules_with([tmp_path / "none"])


def test_words_are_filled_in_and_what_is_not_known_is_n_a(tmp_path: Path) -> None:
    (rule,) = (each for each in rules_with([_folder(tmp_path, GOOD)]) if each.id == "many-layers")
    assert rule.said(rule.en.finding, {"most": 1.0, "gain_us": None}) == "More than 1; gain N/A."
    for text in ("{other}", "{most.real}", "{0}", "{most:d}", "{"):
        with pytest.raises(UsageError, match="cannot be filled in"):
            rule.said(text, {"most": 1.0})


def test_both_languages_of_a_rule_use_the_same_words() -> None:
    for rule in RULES.values():
        used = [
            {name for text in (words.title, words.finding) for _, name, _, _ in string.Formatter().parse(text) if name}
            for words in (rule.en, rule.zh)
        ]
        assert used[0] >= used[1], rule.id


def test_the_rules_say_of_a_layer_what_stats_says_bounds_it(rows: Rows) -> None:
    """Both have the thresholds of the vendor's manual; a layer is in one rule at most, but in each of its suspects."""
    by_bound = {"mac": "cube-inefficient", "vec": "vector-inefficient", "Dtrans": "transform"}
    random_ = random.Random(7)
    expected: dict[str, set[str]] = {name: set() for name, rule in RULES.items() if rule.counters}
    for number in range(600):
        top = random_.choice((0.45, 0.75, 1.0))
        ratios = {name: round(random_.uniform(0, top), 3) for name in RATIOS}
        ratios["mac_busy"] *= random_.random() < 0.7
        bound = bound_by(np.array([*ratios.values()]))
        rows.layer(5.0, layer_name=str(number), bound=bound, **ratios)
        name = by_bound.get(bound or "", bound)
        if bound in ("DLD", "WLD", "Dstr"):
            limits = {each: RULES["memory-bound"].thresholds[f"{each}_suspect"] for each in ("dstr", "dld", "wld")}
            suspects = [f"{each}-suspect" for each, limit in limits.items() if ratios[each] > limit]
            for each in suspects:
                expected[each].add(str(number))
            name = f"{bound.lower()}-suspect" if suspects else "memory-bound"
        if name == "vector-inefficient" and ratios["vec_ppen"] > 0.5:
            continue
        if name in expected:
            expected[name].add(str(number))
    # One is about no bound, the other about a unit that an SS928 does not tell.
    for name in ("cube-fine", "scalar-bound"):
        del expected[name]
    found = {name: {row["layer"] for row in rows.found(RULES[name])} for name in expected}
    assert found == expected
    assert all(found.values())


@pytest.mark.parametrize(
    ("rule", "ratios"),
    [
        ("dld-suspect", {"dld": 0.9}),
        ("dstr-suspect", {"dstr": 0.9}),
        ("wld-suspect", {"wld": 0.9}),
        ("memory-bound", {"dld": 0.6}),
        ("cube-inefficient", {"bound": "mac"}),
        ("vector-inefficient", {"bound": "vec"}),
        ("transform", {"bound": "Dtrans"}),
        ("unexplained", {"bound": "unexplained"}),
        ("scalar-bound", {"bound": "scalar"}),
    ],
)
def test_many_short_layers_count_together(rule: str, ratios: dict[str, Any], rows: Rows) -> None:
    for count, is_told in ((2, False), (198, True)):
        for _ in range(count):
            rows.layer(5.0, share=0.3, **{**dict.fromkeys(RATIOS, 0.1), **ratios})
        assert bool(rows.found(RULES[rule])) is is_told


@pytest.mark.parametrize(
    ("layers", "pieces", "gain_us"),
    [
        (("Conv", "Softplus", "Tanh", "Mul"), "softplus + tanh + mul", 300.0),
        (("Conv+Softplus+Tanh+Mul",), "softplus + tanh + mul", 100.0),
        (("Convolution+Softplus", "Tanh+Eltwise"), "softplus + tanh + mul", 200.0),
        (("Conv", "Sigmoid+Mul"), "sigmoid + mul", 100.0),
        (("Conv", "Power+Erf+Eltwise"), "power + erf + mul", 100.0),
        (("Conv", "Div", "Erf", "Add", "Mul", "Mul"), "div + erf + add", 300.0),
        (("Conv+Add", "Clip+Div", "Mul"), "clip + div + mul", 200.0),
    ],
)
def test_an_activation_in_pieces_is_found_however_it_is_fused(
    layers: tuple[str, ...], pieces: str, gain_us: float, rows: Rows
) -> None:
    rows.layers(*layers * 4)
    found = rows.found(RULES["split-activation"])
    assert len(found) == 4
    assert {(row["pieces"], row["gain_us"]) for row in found} == {(pieces, gain_us)}


@pytest.mark.parametrize("layers", [("Conv", "LeakyRelu"), ("Conv", "Mul", "Tanh"), ("Tanh", "Conv", "Mul")])
def test_what_the_npu_has_is_no_activation_in_pieces(layers: tuple[str, ...], rows: Rows) -> None:
    rows.layers(*layers * 4)
    assert rows.found(RULES["split-activation"]) == []


def test_a_single_one_is_not_told(rows: Rows) -> None:
    rows.layers("Softplus", "Tanh", "Mul")
    assert rows.found(RULES["split-activation"]) == []


def _metric(rows: Rows, name: str, unit: str, *values: float) -> None:
    for value in values:
        rows.put("metrics", session=1, name=name, unit=unit, time_us=0, value=value)


@pytest.mark.parametrize(
    ("rule", "unit", "still", "moved"),
    [
        ("thermal", "C", (40, 50), (40, 56)),
        ("thermal", "C", (80, 84), (80, 86)),
        ("clock-change", "mV", (800, 820), (800, 850)),
    ],
)
def test_a_board_s_sensors_tell_of_heat_and_voltage(
    rule: str, unit: str, still: tuple[float, ...], moved: tuple[float, ...], rows: Rows
) -> None:
    _metric(rows, "calm", unit, *still)
    assert rows.found(RULES[rule]) == []
    _metric(rows, "moved", unit, *moved)
    (found,) = rows.found(RULES[rule])
    assert found["sensor"] == "moved"


def test_a_model_that_is_loaded_in_the_loop(rows: Rows) -> None:
    for _ in range(4):
        rows.put("api_records", session=1, model="m", name="svp_acl_mdl_load_from_mem", type="model", duration_us=80)
        rows.put("api_records", session=1, model="m", name="svp_acl_mdl_execute", type="model", duration_us=100)
    (found,) = rows.found(RULES["load-in-loop"])
    assert (found["loads"], found["gain_us"]) == (4, 60.0)


def _inferences(rows: Rows, *times: int, **values: Any) -> None:
    for number, us in enumerate(times):
        start_us = 10_000 * number
        more = {"start_us": start_us, "end_us": start_us + us, "figures": "final", **values}
        rows.put("inferences", session=1, model="m", **more)


def _means(
    rows: Rows, *latencies: float, model: str = "m", latency_from: str = "call", records_us: float = 900
) -> None:
    found = figures_of(np.array(latencies, np.float64))
    about = {"us": found.mean, "latencies": found.number, "outside_us": (found.mean or 0.0) - records_us}
    about |= {"median_us": found.median, "p95_us": found.p95, "max_us": found.max}
    rows.put("model_means", model=model, inferences=found.number, latency_from=latency_from, **about)


def test_inferences_that_take_unevenly_long(rows: Rows) -> None:
    _means(rows, *[1000] * 18, *[1500], model="few")
    _means(rows, *[1000] * 20, model="even")
    _means(rows, *[1000] * 18, *[1500] * 2)
    (found,) = rows.found(RULES["uneven-inferences"])
    assert (found["median_us"], found["p95_us"], found["gain_us"]) == (1000, 1500, 50.0)


def test_a_few_inferences_that_take_very_long(rows: Rows) -> None:
    _means(rows, *[1000] * 77, *[30_000] * 3)
    (found,) = rows.found(RULES["uneven-inferences"])
    assert (found["p95_us"], found["max_us"], found["mean_us"]) == (1000, 30_000, 2087.5)


def test_an_execute_that_takes_longer_than_its_network(rows: Rows) -> None:
    _means(rows, 1500, 1500, records_us=1000, latency_from="records")
    assert rows.found(RULES["execute-waits"]) == []
    _means(rows, 1500, 1500, records_us=1000)
    (found,) = rows.found(RULES["execute-waits"])
    assert (found["network_us"], found["gain_us"]) == (1000.0, 500.0)


def test_a_model_that_waits_for_another_one_on_the_npu(rows: Rows) -> None:
    named = {"model": "m", "process": 7, "for_process": 8, "calls": 10, "calls_us": 10_000.0}
    rows.put("npu_waits", **named, for_model="a", waits=4, waited_us=800.0)
    rows.put("npu_waits", **named, for_model="short", waits=10, waited_us=400.0)
    rows.put("npu_waits", **named, for_model="seldom", waits=1, waited_us=150.0)
    (found,) = rows.found(RULES["npu-contention"])
    assert (found["for_model"], found["wait_us"], found["gain_us"], found["waits_share"]) == ("a", 200, 80, 40)


def test_parts_of_steps_that_take_long(rows: Rows) -> None:
    names = {"step-communication", "step-free", "step-data"}
    parts = {"communication_us": 5.0, "free_us": 5.0, "preparing_us": 5.0}
    rows.put("step_times", step="step 1", us=100.0, **parts)
    assert not any(rows.found(RULES[name]) for name in names)
    rows.put("step_times", step="step 2", us=100.0, **dict.fromkeys(parts, 25.0))
    for name in names:
        (found,) = rows.found(RULES[name])
        assert (found["gain_us"], found["share_of_steps"], found["worst_step"]) == (15.0, 15.0, "step 2")
    rows.put("step_times", step="step 3", us=100.0, data_us=90.0)
    (found,) = rows.found(RULES["step-data"])
    assert (found["part"], found["gain_us"]) == ("Data Aug Bound", 40.0)


def test_steps_of_devices_that_differ_are_told_by_device(rows: Rows) -> None:
    for step in (1, 2):
        for device, part in (("0", 70.0), ("1", 0.0), ("2", 50.0)):
            named = {"step": f"step {step}, device {device}", "device": device}
            rows.put("step_times", **named, us=100.0, communication_us=part, free_us=20.0 + part / 100)
    found = rows.found(RULES["step-communication"])
    assert [(each["device"], each["share_of_steps"], each["worst_us"]) for each in found] == [
        ("0", 70, 70),
        ("2", 50, 50),
    ]
    (free,) = rows.found(RULES["step-free"])
    assert (free["device"], free["steps"], free["gain_us"]) == (None, 6, pytest.approx(20.4))


def test_cache_misses_and_low_sampling(rows: Rows) -> None:
    _inferences(rows, 1000, cache_hit=90, cache_miss=10)
    (found,) = rows.found(RULES["cache-misses"])
    assert found["miss_rate"] == 0.1
    rows.put("sessions", session=1, sampled=95, due=100)
    assert rows.found(RULES["low-sampling"]) == []
    rows.put("sessions", session=1, sampled=80, due=100)
    assert [row["sampled_share"] for row in rows.found(RULES["low-sampling"])] == [0.8]


def test_layers_on_the_cpu_count_only_between_segments_of_the_npu(rows: Rows) -> None:
    rows.layers("Conv", us=900.0)
    rows.layer(100.0, unit="AA_CPU", segment=1, layer_name="tail")
    assert rows.found(RULES["cpu-cut"]) == []
    rows.layer(50.0, segment=2, layer_name="last")
    _inferences(rows, 1050)
    (found,) = rows.found(RULES["cpu-cut"])
    assert (found["layer"], found["gain_us"]) == ("tail", 150.0)  # the NPU stood still for so long


def test_layers_on_the_cpu_at_the_ends_of_the_network_take_a_large_part_of_it(rows: Rows) -> None:
    rows.layer(900.0, segment=1)
    rows.layer(50.0, unit="AA_CPU", segment=0, layer_name="head", share=5.0)
    rows.layer(40.0, unit="AA_CPU", segment=2, layer_name="between", share=4.0)
    rows.layer(50.0, segment=3, share=5.0)
    assert rows.found(RULES["cpu-layer"]) == []
    rows.layer(60.0, unit="AA_CPU", segment=4, layer_name="tail", share=6.0)
    assert [row["layer"] for row in rows.found(RULES["cpu-layer"])] == ["tail", "head"]


def test_a_network_that_uses_the_cube_unit_well(rows: Rows) -> None:
    rows.layer(100.0, mac_ppen=0.65, mac_busy=0.9, bound="mac")
    (found,) = rows.found(RULES["cube-fine"])
    assert found["mac_ppen"] == pytest.approx(0.65)
    assert rows.found(RULES["cube-inefficient"]) == []
    rows.layer(100.0, mac_ppen=None)
    assert rows.found(RULES["cube-fine"]) == []
    assert len(rows.found(RULES["cube-inefficient"])) == 1
