"""Rows of descriptors equal what the real library's accessors say of the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.ingest.ops import decode

PIPES = sorted((Path(__file__).parents[2] / "data" / "pipe").glob("*.bin"))


@pytest.mark.parametrize("pipe", PIPES, ids=lambda pipe: pipe.stem)
def test_each_row_is_what_the_accessors_answer(pipe: Path) -> None:
    said = json.loads(pipe.with_suffix(".json").read_text())
    events, bad = decode(pipe.read_bytes())
    assert bad == 0
    assert len(events) == said["op_num"]
    for event, op in zip(events, said["ops"], strict=True):
        assert (event.model_id, event.start_us, event.end_us, event.duration_us) == (
            op["model_id"],
            op["start"],
            op["end"],
            op["duration"],
        )
        for kind, text in (("type", event.op_type), ("name", event.op_name)):
            if op[f"{kind}_rc"] == 0:
                assert text == op[f"{kind}_written"].rstrip("\0")
            else:  # 32 bytes: the accessor refuses them
                assert len(text) in {31, 32}


def test_the_rest_of_a_descriptor_is_left_and_nonsense_is_counted() -> None:
    data = PIPES[0].read_bytes()
    assert len(decode(data[:600])[0]) == 2
    assert decode(b"\xff" * 512) == ([], 2)
    assert decode(b"") == ([], 0)
