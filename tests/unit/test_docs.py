"""The pages: what is generated is up to date, every link leads somewhere, and every hint names a page that exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FOLDERS = {"tutorial", "howto", "reference", "internals"}


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_generated_pages_are_what_the_code_gives() -> None:
    command = [sys.executable, str(ROOT / "tools/make_reference.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_the_pages_stand_in_their_four_folders() -> None:
    assert {page.relative_to(ROOT / "docs").parts[0] for page in ROOT.glob("docs/**/*.md")} == FOLDERS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        other = page.parent / target if target else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), f"{target}#{anchor}"


def test_every_page_that_the_code_names_exists() -> None:
    folders = ("agent", "daemon", "tools", "systemd", "protos", "tests")
    files = [
        file for folder in folders for file in (ROOT / folder).rglob("*.*") if file.suffix in {".py", ".proto", ".in"}
    ]
    named = {name for file in files for name in re.findall(r"\bdocs/[\w./-]+\.md", file.read_text("utf-8"))}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    pages = [page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if f"({page})" not in readme] == []
