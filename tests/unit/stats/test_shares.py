"""Latency and shares of a network that the CPU computes most of, against a decoder that knows the format page alone."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.daemon.simulated_job import aicore, api, done
from tests.integration.board import simulated
from tests.integration.host import profagent

INFERENCES, LAYERS = 60, 40
TICKS_PER_US = 7
EXECUTE = 2
NETWORK = f"""
name = "tail"
[[segments]]
unit = "aicore"
runs = [{", ".join(f'{{ time_us = {10 + place}.0, layers = ["conv{place}:Convolution"] }}' for place in range(LAYERS))}]
[[segments]]
unit = "aicpu"
runs = [{{ time_us = 18000.0, layers = ["nms:NonMaxSuppression"] }}]
"""


class Inference(NamedTuple):
    """What an inference's files say: each layer's time, and how long the call that ran it took."""

    layers: dict[str, float]
    call_us: int


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tail")
    (folder / "tail.toml").write_text(NETWORK, "utf-8")
    return simulated(folder / "board", INFERENCES, model=str(folder / "tail.toml"))


@pytest.fixture(scope="module")
def decoded(job: Path) -> list[Inference]:
    """The JOB's inferences; a layer without a record has no time."""
    (log,) = (job / "data").glob("acl_api.0.tail.?")
    calls = [call for call in api(log.read_bytes()) if call[0] == EXECUTE]
    found = []
    for file in (job / "data").glob("aicore.*.tail.*[0-9]"):
        layers: dict[str, float] = defaultdict(float)
        for sequence, ticks, _ in aicore(file.read_bytes()):
            layers[f"conv{sequence}"] += ticks / TICKS_PER_US
        (record,) = struct.iter_unpack("<I4xQQQQ", Path(f"{file}".replace("aicore.", "aicpu.")).read_bytes()[:0x28])
        layers["nms"] = record[2] - record[1]
        begin, end = int(done(Path(f"{file}.done").read_bytes())["start_time"]), record[4]
        (call_us,) = (call[2] - call[1] for call in calls if call[1] <= begin and end <= call[2])
        found.append(Inference(layers, call_us))
    return found


@pytest.fixture(scope="module")
def rows(job: Path) -> dict[str, dict[str, Any]]:
    """The rows of `stats` by layer."""
    found = profagent("stats", job, "--skip", "0", "--json").document["rows"]
    return {row["layer"]: row for row in found}


def test_a_share_is_of_the_latency_whichever_processor_the_layer_runs_on(
    decoded: list[Inference], rows: dict[str, dict[str, Any]]
) -> None:
    latency_us = np.mean([each.call_us for each in decoded])
    assert len(decoded) == INFERENCES
    assert any(len(each.layers) <= LAYERS for each in decoded), "the runtime dropped a record"
    for layer in (*(f"conv{place}" for place in range(LAYERS)), "nms"):
        us = np.mean([each.layers[layer] for each in decoded if layer in each.layers])
        assert (rows[layer]["in_inference"], rows[layer]["share"]) == pytest.approx((us, us / latency_us * 100))
    first, *_, last = rows.values()
    assert (first["layer"], first["unit"], round(first["share"])) == ("nms", "AA_CPU", 94)
    assert last["layer"] == "not in any layer"
    assert sum(row["share"] for row in rows.values()) == pytest.approx(100.0)


def test_the_headline_is_the_time_of_the_calls(job: Path, decoded: list[Inference]) -> None:
    (row,) = profagent("stats", job, "--by", "model", "--skip", "0", "--json").document["rows"]
    calls_us = [each.call_us for each in decoded]
    figures = [row[name] for name in ("latency", "p95", "p99", "mean", "max")]
    assert figures == pytest.approx([*np.quantile(calls_us, (0.5, 0.95, 0.99)), np.mean(calls_us), max(calls_us)])
    assert (row["latency_from"], row["recorded"], row["of_layers"]) == ("call", LAYERS + 1, LAYERS + 1)
    names = {layer for each in decoded for layer in each.layers}
    means = {name: np.mean([each.layers[name] for each in decoded if name in each.layers]) for name in names}
    sums = [float(sum(each.layers.get(name, mean) for name, mean in means.items())) for each in decoded]
    assert row["layers"] == pytest.approx(np.median(sums))


def test_types_segments_and_advice_have_the_same_shares(job: Path, rows: dict[str, dict[str, Any]]) -> None:
    def shares(by: str, name: str) -> dict[str, float]:
        found = profagent("stats", job, "--by", by, "--skip", "0", "--json").document["rows"]
        return {row[name]: row["share"] for row in found}

    npu = sum(row["share"] for row in rows.values() if row["unit"] == "AA_CORE")
    rest = rows["not in any layer"]["share"]
    assert shares("type", "type") == pytest.approx(
        {"NonMaxSuppression": rows["nms"]["share"], "Convolution": npu, "not in any layer": rest}
    )
    assert shares("segment", "unit") == pytest.approx({"AA_CPU": rows["nms"]["share"], "AA_CORE": npu, "-": rest})
    assert shares("aicpu", "layer") == pytest.approx({"nms": rows["nms"]["share"]})
    first = profagent("advise", job, "--json", LANG="C").document["findings"][0]
    whole = profagent("stats", job, "--json").document["rows"][0]
    assert (first["rule"], first["share"]) == ("cpu-layer", pytest.approx(whole["share"]))


def test_beside_the_table_it_says_what_shares_are_of(job: Path) -> None:
    said = profagent("stats", job, "--top", "1").out
    assert "tail: shares are of its mean latency, " in said
    assert " us, by its calls; 41 of 41 layers recorded" in said
    assert "lack a layer's record, which counts there with its mean" in said
    assert said.splitlines()[-1].endswith("records of layers (sequence-gap, see `profagent ledger`)")
