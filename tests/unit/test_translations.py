"""A translation is found to be out of date as soon as its original differs from the one that it was made from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.check_translations import ROOT, blob_of, faults_of, line_of_languages, renew, translations


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A translation that is up to date."""
    original = tmp_path / "docs" / "page.md"
    original.parent.mkdir()
    original.write_text("# Page\n\n[中文](page.zh.md)\n\nText.\n", "utf-8")
    translation = original.with_name("page.zh.md")
    translation.write_text(f"# 页面\n\n{line_of_languages(original)}\n\n正文。\n", "utf-8")
    return translation


def test_a_translation_of_todays_original_has_no_fault(page: Path, tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "other.zh.md").touch()
    (tmp_path / "README.zh.md").touch()
    assert translations(tmp_path) == [tmp_path / "README.zh.md", page]
    assert faults_of(page) == []


def test_a_translation_of_an_earlier_original_is_named_with_what_mends_it(page: Path) -> None:
    original = page.with_name("page.md")
    earlier = blob_of(original)
    original.write_text(original.read_text("utf-8") + "More.\n", "utf-8")
    (fault,) = faults_of(page)
    assert fault.startswith(f"{page}: its original changed")
    assert f"git diff {earlier[:12]} {original}" in fault
    assert f"python3 tools/check_translations.py --renew {page}" in fault
    renew(page)
    assert faults_of(page) == []
    assert page.read_text("utf-8").endswith("正文。\n")


def test_a_page_without_its_line_of_languages_is_named(page: Path) -> None:
    original = page.with_name("page.md")
    original.write_text("# Page\n\nText.\n", "utf-8")
    page.write_text("# 页面\n\n正文。\n", "utf-8")
    assert faults_of(page) == [
        f"{page}: write `{line_of_languages(original)}` below its title, as line 3",
        f"{original}: write `[中文](page.zh.md)` below its title, as line 3",
    ]
    with pytest.raises(SystemExit, match="below its title"):
        renew(page)


def test_a_translation_of_nothing_is_named(page: Path) -> None:
    page.with_name("page.md").unlink()
    (fault,) = faults_of(page)
    assert "there is no page.md" in fault


def test_the_blob_is_the_one_that_git_shows_a_difference_to() -> None:
    told = subprocess.run(
        ["git", "hash-object", "--no-filters", "README.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert told.stdout.strip() == blob_of(ROOT / "README.md")
