"""Which files go into a kit."""

from __future__ import annotations

import pytest  # noqa: TC002

from profagent.calibrate import kit as module
from profagent.calibrate.kit import FIRST_INFERENCES, choose

MODEL = {"info.json.0": 42, "data/m.0.net.info": 90, "data/m.0.layer.info": 9_000}


def inference(pictures: int, size: int = 256, model: str = "m") -> dict[str, int]:
    log = f"{model}.3.0.1.1.{pictures}"
    return {f"data/{kind}.0.{log}{end}": size for kind in ("aicore", "aicpu") for end in ("", ".done")}


def test_the_first_inferences_of_each_model_and_those_of_the_vendors_tables() -> None:
    many = {
        path: size for model in ("m", "n") for each in range(60) for path, size in inference(each, 256, model).items()
    }
    chosen = choose(MODEL | many, {(0, 1, 1, 55)})
    wanted = {*MODEL}
    for model in ("m", "n"):
        wanted |= {path for each in [*range(FIRST_INFERENCES), 55] for path in inference(each, 256, model)}
    assert chosen.chosen.keys() == wanted
    (left,) = chosen.left_out
    assert (left.what, left.files) == ("further inferences", len(many) + len(MODEL) - len(wanted))


def test_what_settles_nothing_or_is_somebodys_data_stays_at_home() -> None:
    others = {"data/acl_api.0.m.0": 64, "data/acl_api.0.m.0.done": 80, "data/cont.0.m.0.1.1.0": 7, "notes.txt": 5}
    chosen = choose(MODEL | {"simulated": 9} | others, set())
    assert chosen.chosen.keys() == {*MODEL, "simulated"}
    assert [(each.what, each.files, each.bytes) for each in chosen.left_out] == [
        ("calls of the runtime (acl_api)", 2, 144),
        ("other files", 1, 5),
        ("tensors (cont)", 1, 7),
    ]


def test_a_kit_stays_small_and_what_the_vendors_table_is_of_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", sum(MODEL.values()) + 2 * 1_024)
    chosen = choose(MODEL | inference(0) | inference(1, 999_999) | inference(2) | inference(9), {(0, 1, 1, 9)})
    assert chosen.chosen.keys() == {*MODEL, *inference(0), *inference(9)}
    (left,) = chosen.left_out
    assert (left.what, left.files) == ("files that are too large", 8)
