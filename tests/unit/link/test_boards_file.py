"""boards.toml: what stands there, what a change leaves as it was, and what cannot be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.errors import UsageError
from profagent.link.boards_file import BoardEntry, BoardsFile

FINGERPRINT = "ab" * 32
EULER = BoardEntry("euler", "192.0.2.2:50151", "u-1", FINGERPRINT, "root@euler")
TEXT = f"""# boards of lab 3
[boards.euler]
address = "192.0.2.2:50151" # on the shelf
uuid = "u-1"
fingerprint = "{FINGERPRINT}"
ssh = "root@euler"

# the loan
[boards.orange]
address = "192.0.2.3"
"""


@pytest.fixture
def file(tmp_path: Path) -> BoardsFile:
    (tmp_path / "boards.toml").write_text(TEXT, "utf-8")
    return BoardsFile(tmp_path / "boards.toml")


def test_boards_are_read_in_their_order(file: BoardsFile) -> None:
    assert list(file.entries().values()) == [EULER, BoardEntry("orange", "192.0.2.3")]
    assert file.known()["euler"].fingerprint == FINGERPRINT


def test_only_ssh_leads_to_what_listens_on_the_board_alone(file: BoardsFile) -> None:
    file.put(BoardEntry("near", "127.0.0.1"))
    file.put(BoardEntry("inside", "127.0.0.1", ssh="root@inside"))
    file.put(BoardEntry("socket", "unix:/run/profagentd/socket", ssh="root@socket"))
    found = file.behind_ssh(["socket", "euler", "near", "inside", "192.0.2.3", "inside"])
    assert [entry.name for entry in found] == ["socket", "inside"]


def test_a_change_keeps_comments_and_other_boards(file: BoardsFile) -> None:
    assert file.put(BoardEntry("euler", "192.0.2.9"))
    assert not file.put(BoardEntry("new", "192.0.2.4", uuid="u-4"))
    text = file.path.read_text("utf-8")
    assert "# boards of lab 3" in text
    assert 'address = "192.0.2.9" # on the shelf' in text
    assert "# the loan" in text
    assert file.entries() == {
        "euler": BoardEntry("euler", "192.0.2.9"),
        "orange": BoardEntry("orange", "192.0.2.3"),
        "new": BoardEntry("new", "192.0.2.4", uuid="u-4"),
    }


def test_the_name_of_another_board_is_not_taken_unasked(file: BoardsFile) -> None:
    with pytest.raises(UsageError, match="euler is another board") as error:
        file.put(BoardEntry("euler", "192.0.2.9", "u-2"), is_same=True)
    assert "profagent boards remove euler" in error.value.hint
    assert file.entries()["euler"] == EULER
    file.put(BoardEntry("orange", "192.0.2.9", "u-2"), is_same=True)
    file.put(BoardEntry("euler", "192.0.2.9", "u-1"), is_same=True)
    assert file.entries()["euler"].address == "192.0.2.9"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[boards", "boards.toml"),
        ("boards = 1", "boards is no table"),
        ("[boards]\na = 1", "a is no table of texts"),
        ("[boards.a]\naddress = 1", "a is no table of texts"),
        ('[boards.a]\naddress = "h"\nuser = "x"', "unknown key 'user'"),
        ("[boards.a]\nuuid = 'x'", "a has no address"),
        ("[boards.'a.b']\naddress = 'x'", "no board's name"),
        ("[boards.a]\naddress = 'x'\nfingerprint = 'AB'", "no SHA-256"),
        ("\udcff", "boards.toml"),
    ],
)
def test_what_cannot_be_right_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "boards.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=said) as error:
        BoardsFile(tmp_path / "boards.toml").entries()
    assert error.value.hint
