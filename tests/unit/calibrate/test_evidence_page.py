"""Both pages that ask for evidence say the same, and nothing that the commands do not have."""

from __future__ import annotations

import re
from pathlib import Path

from profagent.calibrate.kit import FIRST_INFERENCES, MOST_BYTES, command

DOCS = Path(__file__).parents[3] / "docs" / "howto"
PAGES = [(DOCS / name).read_text("utf-8") for name in ("send-evidence.md", "send-evidence.zh.md")]


def test_both_pages_have_the_same_commands() -> None:
    english, chinese = (re.findall(r"^ *```.*?```|`[^`\n]+`", page, re.MULTILINE | re.DOTALL) for page in PAGES)
    assert set(english) == set(chinese)
    assert any("msprof.pyc export summary -dir" in block for block in english)
    assert PAGES[0].count("\n## ") == PAGES[1].count("\n## ")


def test_the_pages_tell_true_options_and_limits() -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    for page in PAGES:
        (kit,) = re.findall(r"^profagent kit -o .*?\n(?=tar)", page, re.MULTILINE | re.DOTALL)
        assert set(re.findall(r" (--?[a-z][a-z-]*)", kit)) <= options
        assert "--anonymous" in page
        assert f" {FIRST_INFERENCES} " in page
        assert f"{MOST_BYTES >> 20} MiB" in page
