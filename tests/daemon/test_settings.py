"""Where each key of a file stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagentd.mistakes import Mistake
from profagentd.settings import Settings, given, read_settings

TEXT = """# remark
depth = 2

roots = [
    '/a', # listen = 'x'
    '/b',
]
state = '''
scan = true
'''
[[other]]
scan = true
"""


def test_a_key_stands_on_the_line_on_which_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(TEXT)
    settings = read_settings(path)
    assert isinstance(settings, Settings)
    lines = {key: int(place.rpartition(":")[2]) for key, place in settings.places.items()}
    assert lines == {"depth": 2, "roots": 4, "state": 8, "other": 11}
    assert settings.places["depth"] == f"{path}:2"


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("depth = 1\nroots = \n", "2:9", "roots: "),
        ("depth = 1\nroots = '/a' '/b'\n", "2:14", "roots: "),
        ("a = 1\n a = [\n2,\n]\n", "2:2", "a: it is given on line 1 already"),
        ("a = [\n1,\n", "2:3", "a: "),
        ("a = [\n1,", "2:3", "a: "),
        ("#\na = '\xe9'\n", "2", "0xe9 is no UTF-8"),
    ],
)
def test_what_is_no_toml_is_named_with_its_place_and_key(tmp_path: Path, text: str, place: str, what: str) -> None:
    path = tmp_path / "d.toml"
    path.write_text(text, "latin-1" if "\xe9" in text else "utf-8")
    mistake = read_settings(path)
    assert isinstance(mistake, Mistake)
    assert mistake.place == f"{path}:{place}"
    assert mistake.text.startswith(what)
    assert "(at" not in mistake.text


def test_arguments_that_were_not_given_are_none() -> None:
    assert given({"depth": 3, "scan": None}) == Settings({"depth": 3}, {"depth": "the arguments"})
