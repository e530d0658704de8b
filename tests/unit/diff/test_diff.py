"""`diff`: which runs are compared, what it is told, and the text of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.diff.cli import floor_of
from profagent.diff.comparing import Floor
from profagent.diff.diff import Diff, Operand, diff, parse_condition
from profagent.diff.report import diff_document, junit_cases, report_lines
from profagent.errors import UsageError
from tests.unit.store.database import START_US, DatabaseBuilder

TEXT = """\
comparable
FAILED: layers: 1 slower; 1 fused, 1 removed; yolo latency +5.0 % (20.0 → 21.0 us)
FAILED layer.median>+5%: pool +50.0 % (4.0 → 6.0 us)
passed latency.median>+10%
BASE is 1: JOBA: captured N/A (interval N/A)
NEW is 2: JOBB: captured N/A (interval N/A)
layers: 5 layers in BASE, 3 in NEW of yolo; 80% alike
incomplete: NEW: loss: torn-record (2)
unknown: BASE does not tell interval
unknown: NEW does not tell interval

yolo: 6 inferences of 5 layers and 6 inferences of 3 layers; latency +5.0 % (20.0 → 21.0 us), by records
sum of layers +5.6 % (18.0 → 19.0 us)

layer                    what     BASE(us)  NEW(us)  change(us)  change(%)       p
-----------------------  -------  --------  -------  ----------  ---------  ------
conv | relu → conv+relu  fused      12.000   12.000       0.000       0.00  1.0000
gone                     removed     1.000      N/A         N/A        N/A     N/A
pool                     slower      4.000    6.000       2.000      50.00  0.0000
"""


def _session(
    builder: DatabaseBuilder,
    name: str,
    layers: dict[str, int],
    *,
    model: str = "yolo",
    mhz: int | None = 700,
    **values: int,
) -> int:
    """Six inferences without noise, from the layers' times in µs, which take 2 µs more than these."""
    session = builder.session(**{"ended_us": START_US, **values})
    number = builder.model(builder.job(session, name=name, frequency_mhz=mhz), model, layers=tuple(layers))
    for pic in range(6):
        start_us = START_US + 1000 * pic
        end_us = start_us + sum(layers.values()) + 2
        inference = builder.inference(session, number, pic, start_us=start_us, end_us=end_us)
        builder.aicore(inference, builder.new_part(session, number, "aicore"), [7 * us for us in layers.values()])
    return session


async def _diff(file: Path, *conditions: str, base: int = 1, new: int = 2) -> Diff:
    return await diff(
        Operand(str(base), file, base), Operand(str(new), file, new), [parse_condition(text) for text in conditions]
    )


def _two(builder: DatabaseBuilder) -> Path:
    _session(builder, "JOBA", {"conv": 8, "relu": 4, "gone": 1, "pool": 4, "end": 1})
    new = _session(builder, "JOBB", {"conv+relu": 12, "pool": 6, "end": 1})
    builder.ledger(new, "loss", "torn-record", 2)
    return builder.close()


async def test_the_text_has_the_verdict_first(builder: DatabaseBuilder) -> None:
    found = await _diff(_two(builder), "layer.median>+5%", "latency.median>+10%")
    assert "\n".join(report_lines(found, as_markdown=False)) + "\n" == TEXT


async def test_layers_that_some_inferences_lack_are_told_and_shift_no_other(builder: DatabaseBuilder) -> None:
    """Of another tool's files layers stand in the order in which they were first seen."""
    for lacking in (0, 2):
        session = builder.session(ended_us=START_US)
        order = ("conv", "soft", "mm") if lacking else ("conv", "mm", "soft")
        model = builder.model(builder.job(session, name=f"JOB{session}"), "net", layers=order)
        for pic in range(20):
            ticks = {"conv": 700 + pic, "mm": 2100 + pic, "soft": 350 + pic}
            layers: list[int | None] = [order.index(name) for name in ticks if name != "mm" or pic >= lacking]
            inference = builder.inference(session, model, pic, start_us=START_US + 1000 * pic)
            part = builder.new_part(session, model, "aicore")
            builder.aicore(inference, part, [ticks[order[layer or 0]] for layer in layers], layers=layers)
    builder.close()
    found = await _diff(builder.file)
    assert {match.kind for match in found.models[0].matches} == {"same"}
    lines = list(report_lines(found, as_markdown=False))
    assert lines[1] == "no layer is slower or faster by more than the noise"
    assert "NEW: 2 of 20 inferences lack a layer that most have: mm (2)" in lines
    (model_document,) = diff_document(found)["models"]
    assert model_document["base_lacking"] == {"inferences": 0, "layers": []}
    (mm,) = model_document["new_lacking"]["layers"]
    assert (mm["name"], mm["inferences"]) == ("mm", 2)


async def test_another_number_of_a_layer_s_records_is_told_and_is_neither_slower_nor_faster(
    builder: DatabaseBuilder,
) -> None:
    """The second run lacks the second of three records of `add`, in all inferences; the third, in some."""
    for lacking in ([], [1] * 20, [2] * 4):
        session = builder.session(ended_us=START_US)
        model = builder.model(builder.job(session, name=f"JOB{session}"), "net", layers=("add", "mm"))
        for pic in range(20):
            missing = lacking[pic] if pic < len(lacking) else None
            adds = [us for at, us in enumerate((10, 20, 40)) if at != missing]
            inference = builder.inference(session, model, pic, start_us=START_US + 1000 * pic)
            part = builder.new_part(session, model, "aicore")
            ticks = [7 * us + pic for us in (*adds, 100)]
            layers: list[int | None] = [0] * len(adds)
            builder.aicore(inference, part, ticks, layers=[*layers, 1])
    builder.close()
    found = await _diff(builder.file, "layer.median>+5%", "layer[mm].median>+5%")
    lines = list(report_lines(found, as_markdown=False))
    assert lines[1].startswith("no layer is slower or faster by more than the noise; 1 another number of times")
    assert "cannot tell layer.median>+5%: BASE and NEW have other numbers of records in an inference: add" in lines
    assert "passed layer[mm].median>+5%" in lines
    assert any(line.startswith("add    3 → 2 times an inference") for line in lines)
    found = await _diff(builder.file, "layer.median>+5%", new=3)
    assert not any(change.times or change.is_significant for change in found.models[0].changes.values())
    assert found.models[0].new.lacking() == (4, {0: 4})
    assert "passed layer.median>+5%" in report_lines(found, as_markdown=False)


async def test_a_counter_that_moved_and_is_not_certain_is_marked(builder: DatabaseBuilder) -> None:
    for name, us, dld, likely in (("JOBA", 8, 0.41, "dld,wld"), ("JOBB", 9, 0.48, None)):
        session = builder.session(ended_us=START_US, counter_map="m", counter_map_likely=likely)
        number = builder.model(builder.job(session, name=name), "yolo", layers=("conv",))
        for pic in range(6):
            counters = (0.5,) * 6 + (dld + pic / 10_000,) + (0.3,) * 3
            inference = builder.inference(session, number, pic, start_us=START_US + pic)
            builder.aicore(inference, builder.new_part(session, number, "aicore"), [7 * us], counters=[counters])
    found = await _diff(builder.close())
    lines = list(report_lines(found, as_markdown=False))
    assert any("slower, dld 41 % → 48 %?  " in line for line in lines)
    assert "the counter map is not certain of dld, wld: a ? marks what rests on it" in lines
    assert diff_document(found)["likely"] == ["dld", "wld"]


async def test_no_name_breaks_markdown(builder: DatabaseBuilder) -> None:
    _session(builder, "JOBA", {"a|b_*": 8}, model="<b>*")
    _session(builder, "JOBB", {"a|b_*": 9}, model="<b>*")
    lines = list(report_lines(await _diff(builder.close()), as_markdown=True))
    assert lines[1].startswith("**layers: 1 slower; &lt;b&gt;\\* latency +10.0 %")
    assert [line for line in lines if line.startswith("- &lt;b&gt;\\*: 6 inferences of 1 layer and")]
    assert lines[-1].startswith("| a\\|b\\_\\* | slower | 8.000 | 9.000 |")


async def test_many_changes_fit_into_a_comment_of_any_forge(builder: DatabaseBuilder) -> None:
    names = [f"/model.{at}/cv2.0/cv2.0.0/conv/Conv_{at}" for at in range(700)]
    for job, factor in (("JOBA", 10), ("JOBB", 11)):
        _session(builder, job, {name: (at + 20) * factor for at, name in enumerate(names)})
    found = await _diff(builder.close(), "layer.median>+5%")
    lines = list(report_lines(found, as_markdown=True))
    assert len("\n".join(lines)) < 65_536 / 2
    rows = [line.split(" | ")[0].rpartition("Conv\\_")[2] for line in lines if "| slower |" in line]
    assert rows == [str(at) for at in range(600, 700)]
    assert lines[-1] == "… and 600 smaller changes: `--json` has all"
    (failed,) = (line for line in lines if "FAILED layer" in line)
    assert failed.count(" us)") == 20
    assert failed.endswith(", and 680 smaller changes")
    assert len(list(report_lines(found, as_markdown=False))) > 700


async def test_the_document_and_the_test_cases(builder: DatabaseBuilder) -> None:
    found = await _diff(_two(builder), "layer.median>+5%", "latency.median>+10%", "layer[conv1].max>+1us")
    document = diff_document(found)
    assert (document["complete"], document["can_tell"]) == (False, True)
    assert [(each["condition"], each["holds"], each["cannot_tell"]) for each in document["conditions"]] == [
        ("layer.median>+5%", True, None),
        ("latency.median>+10%", False, None),
        ("layer[conv1].max>+1us", False, "not in both runs: layer conv1"),
    ]
    assert [layer["what"] for layer in document["models"][0]["layers"]] == ["fused", "removed", "same", "same"]
    cases = junit_cases(found)
    assert [failure is None for _, failure in cases] == [False, True, False, True, False]
    assert cases[2][1] == "cannot tell layer[conv1].max>+1us: not in both runs: layer conv1"
    assert cases[4][1] == "NEW is incomplete: loss: torn-record (2)"


async def test_a_share_of_no_noise_cannot_be_told(builder: DatabaseBuilder) -> None:
    for name, ticks, noise in (("JOBA", 56, 0), ("JOBB", 70, 1)):
        session = builder.session(ended_us=START_US)
        model = builder.model(builder.job(session, name=name, frequency_mhz=700), "yolo", layers=("conv", "pool"))
        for pic in range(6):
            inference = builder.inference(session, model, pic, start_us=START_US + pic)
            part = builder.new_part(session, model, "aicore")
            builder.aicore(inference, part, [ticks + noise * pic, 42 + pic])
    found = await _diff(builder.close(), "layer.mad>+3%", "layer[pool].mad>+3%", "layer.mad>+0.1us")
    assert [(bool(each.failing), each.undecided) for each in found.outcomes] == [
        (False, "nothing is a % of BASE's mad, 0: conv"),
        (False, ""),
        (True, ""),
    ]


async def test_what_cannot_be_compared_is_refused(builder: DatabaseBuilder) -> None:
    _session(builder, "JOBA", {"a": 1})
    builder.job(builder.session(ended_us=START_US), name="JOBB")
    _session(builder, "JOBC", {"a": 1}, mhz=None)
    file = builder.close()
    with pytest.raises(UsageError, match="no model is in both runs"):
        await _diff(file)
    with pytest.raises(UsageError, match="the length of a tick is unknown in JOBC"):
        await _diff(file, new=3)
    with pytest.raises(UsageError, match="no session 9"):
        await _diff(file, new=9)


@pytest.mark.parametrize(
    ("text", "floor"), [("1%,0.1us", Floor(1, 0.1)), ("2.5%", Floor(2.5, 0)), ("0%, 3us", Floor(0, 3))]
)
def test_floors(text: str, floor: Floor) -> None:
    assert floor_of(text) == floor


@pytest.mark.parametrize("text", ["", "1", "1us", "1%,2ms", "-1%"])
def test_what_is_no_floor_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        floor_of(text)


async def test_a_capture_that_was_cut_is_among_the_differences(builder: DatabaseBuilder) -> None:
    _session(builder, "JOBA", {"conv": 8})
    builder.ledger(_session(builder, "JOBB", {"conv": 8}), "note", "not-covered", 1)
    found = await _diff(builder.close())
    assert not found.is_complete
    assert [each for each in found.comparability.differences if str(each).startswith("incomplete: NEW: ")]
