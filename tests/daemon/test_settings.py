"""Settings that a file or the arguments give."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagentd.config import Settings, given, read_settings
from profagentd.errors import Mistake


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"depth = 1\nroots = \n", "line 2, column 9"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"#\na = '\xe9'\n", "0xe9 is no UTF-8"),
    ],
)
def test_what_is_no_toml_is_named_with_its_file(tmp_path: Path, text: bytes, what: str) -> None:
    path = tmp_path / "d.toml"
    path.write_bytes(text)
    mistake = read_settings(path)
    assert isinstance(mistake, Mistake)
    assert mistake.place.startswith(str(path))
    assert what in mistake.text


def test_arguments_that_were_not_given_are_none() -> None:
    assert given({"depth": 3, "scan": None}) == Settings({"depth": 3}, {"depth": "the arguments"})
