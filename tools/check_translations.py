"""Check that each Chinese page (`NAME.zh.md`) was made from the original (`NAME.md`) as that stands today.

A translation names the Git blob of the original that it was made from, in its line of languages below the title:

    [English](NAME.md) <!-- translated from 0123456789ab -->

After the translation was updated, `python3 tools/check_translations.py --renew NAME.zh.md` writes the blob of today's
original.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from inspect import cleandoc
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIX = ".zh.md"
BLOB_CHARACTERS = 12
_LINE = re.compile(r"^\[English\]\((?P<original>[^)]*)\) <!-- translated from (?P<blob>\w+) -->$", re.MULTILINE)
# The title, an empty line, the line of languages.
LINES_OF_HEAD = 3


def main() -> None:
    """Name every translation that is out of date, and fail; with --renew accept the named ones as they are."""
    parser = argparse.ArgumentParser(description=cleandoc(__doc__ or "").splitlines()[0])
    parser.add_argument("--renew", nargs="+", type=Path, default=[], metavar="PAGE", help="these are up to date now")
    for page in parser.parse_args().renew:
        renew(page)
    if faults := [fault for page in translations(ROOT) for fault in faults_of(page)]:
        sys.exit("\n".join(faults))


def translations(root: Path) -> list[Path]:
    """Return all translations below the root, without hidden folders such as environments."""
    folders = (each for each in root.glob("[!.]*/") if each.is_dir())
    return sorted([*root.glob(f"*{SUFFIX}"), *(page for folder in folders for page in folder.rglob(f"*{SUFFIX}"))])


def faults_of(page: Path) -> list[str]:
    """Return one sentence for each fault of a translation, with what mends it."""
    name, original = _name(page), original_of(page)
    if not original.exists():
        return [f"{name}: there is no {original.name} that it translates; remove it, or rename it as its original"]
    faults = []
    line = _LINE.search(_head(page))
    if line is None or line["original"] != original.name:
        faults.append(f"{name}: write `{line_of_languages(original)}` below its title, as line {LINES_OF_HEAD}")
    elif not blob_of(original).startswith(line["blob"]):
        faults.append(
            f"{name}: its original changed; `git diff {line['blob']} {_name(original)}` shows how. Translate that, "
            f"then run `python3 tools/check_translations.py --renew {name}`"
        )
    if f"[中文]({page.name})" not in _head(original):
        faults.append(f"{_name(original)}: write `[中文]({page.name})` below its title, as line {LINES_OF_HEAD}")
    return faults


def renew(page: Path) -> None:
    """Write the blob of today's original into a translation."""
    original = original_of(page)
    text, count = _LINE.subn(line_of_languages(original), page.read_text("utf-8"), count=1)
    if not count:
        sys.exit(f"{page}: write `{line_of_languages(original)}` below its title, as line {LINES_OF_HEAD}")
    page.write_text(text, "utf-8")


def original_of(page: Path) -> Path:
    """Return the page that `NAME.zh.md` translates: `NAME.md` beside it."""
    return page.with_name(f"{page.name.removesuffix(SUFFIX)}.md")


def line_of_languages(original: Path) -> str:
    """Return the line of a translation that links to its original and names its blob."""
    return f"[English]({original.name}) <!-- translated from {blob_of(original)[:BLOB_CHARACTERS]} -->"


def blob_of(page: Path) -> str:
    """Return the name that Git gives to the page's bytes, without asking Git: an archive has no repository."""
    content = page.read_bytes()
    # Git chose SHA-1; here it finds changes, and protects nothing.
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


def _head(page: Path) -> str:
    return "\n".join(page.read_text("utf-8").splitlines()[:LINES_OF_HEAD])


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else str(page)


if __name__ == "__main__":
    main()
