"""`nightly.toml`: what is read, and what is refused by its name."""

from __future__ import annotations

import pytest

from profagent.errors import UsageError
from profagent.nightly.night import EXAMPLE, read_settings

BOARD = '[[boards]]\nname = "lab1"\n'
RECORD = BOARD + 'record = { for = "10m" }\n'


def test_the_example_is_read_and_its_comments_tell_the_defaults() -> None:
    settings = read_settings(EXAMPLE, "nightly.toml")
    said = EXAMPLE.replace("# workspace", "workspace")
    for key in ("schedule", "time_limit", "attempts", "wait", "exports", "baseline", "webhook", "command", "labels"):
        said = said.replace(f"# {key} =", f"{key} =")
    told = read_settings(said.replace("# [tell]", "[tell]"), "nightly.toml")
    assert (told.time_limit, told.attempts, told.wait) == (settings.time_limit, settings.attempts, settings.wait)
    assert told.schedule == settings.schedule
    assert (told.exports, told.baseline, told.tell, told.boards) == (
        settings.exports,
        settings.baseline,
        settings.tell,
        settings.boards,
    )


def test_every_commented_key_of_the_example_is_one() -> None:
    """Uncommented, the whole of it is read: no key is only in the comments."""
    lines = [line.removeprefix("# ") if _is_setting(line) else line for line in EXAMPLE.splitlines()]
    settings = read_settings("\n".join(lines), "nightly.toml")
    assert [board.name for board in settings.boards] == ["lab1", "lab2"]
    assert settings.boards[1].collect is not None
    assert settings.retention.keep_last == 14


def _is_setting(line: str) -> bool:
    return line.startswith("# [") or (line.startswith("# ") and " = " in line.partition("  #")[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "boards"),
        ("boards = []", "there are no boards"),
        (RECORD + "recrod = 3\n", "recrod"),
        (BOARD, "needs either record or collect"),
        (RECORD + 'collect = { main = "x" }\n', "needs either record or collect"),
        (RECORD + RECORD, "lab1 is there twice"),
        (BOARD + "record = {}\n", "has no end"),
        ("attempts = 0\n" + RECORD, "attempts is less than 1"),
        ('attempts = "3"\n' + RECORD, "$.attempts"),
        ('exports = ["pdf"]\n' + RECORD, "$.exports"),
        (RECORD + '[tell]\nwebhook = "file:///etc/passwd"\n', "webhook is no http"),
        ("x = [", "nightly.toml"),
    ],
)
def test_what_cannot_be_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_settings(text, "nightly.toml")
    assert said in str(raised.value)
    assert "nightly init" in raised.value.hint
