"""What is made out of texts that are nearly JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from profagent.doctor.near_json import read_near_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.sampled_from([None, 2]))
def test_json_is_read_as_it_is(loaded: dict[str, object], indent: int | None) -> None:
    assert read_near_json(json.dumps(loaded, indent=indent).encode()) == loaded


@given(st.text(alphabet="{}[]:,\"'/*#\\ \nab1", max_size=40))
def test_any_text_gives_an_object(text: str) -> None:
    assert isinstance(read_near_json(text.encode()), dict)
