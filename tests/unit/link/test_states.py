"""The link's table and its page are the same."""

from __future__ import annotations

from pathlib import Path

from profagent.link.states import ARROWS

PAGE = Path(__file__).parents[3] / "docs" / "wire.md"


def test_the_page_has_the_table() -> None:
    rows = [
        f"| {arrow.state.value} | {arrow.cause.value} | {arrow.target.value} | {arrow.wait.value} |" for arrow in ARROWS
    ]
    heading = "| state | what happens | then | for |\n|---|---|---|---|\n"
    assert heading + "\n".join(rows) in PAGE.read_text("utf-8")
