"""The commands of the tutorial and of README run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.integration.board import running
from tests.integration.host import profagent
from tools.check_translations import original_of, translations

ROOT = Path(__file__).parents[2]
PAGES = sorted(set((ROOT / "docs" / "tutorial").glob("*.md")) - set(translations(ROOT)))


def commands(page: Path) -> list[list[str]]:
    """Return the words of each `profagent` command in the page's blocks and in the cells of its tables."""
    blocks = re.findall(r"^ *```\n(.*?)^ *```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.replace("\\\n", "").splitlines()]
    lines += re.findall(r"^\|.*\| `(profagent [^`]*)` \|", page.read_text("utf-8"), re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("profagent ")]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tutorial's own `record` of a simulated board has left a session; two of them, for `diff`."""
    folder = tmp_path_factory.mktemp("tutorial")
    (record,) = (words for words in commands(PAGES[0]) if words[0] == "record")
    for number in (1, 2):
        root = folder / f"root-{number}"
        root.mkdir()
        with running("--simulate", "--rate", "40", "--for", "1", "--root", root) as daemon:
            words = [
                {"127.0.0.1:50151": daemon.address, "first": str(folder / "first")}.get(word, word) for word in record
            ]
            ended = profagent(*words, "--new")
            assert ended.code == 0, ended.err
    return folder / "first"


@pytest.mark.parametrize(
    "words",
    [words for page in PAGES for words in commands(page) if words[0] not in {"watch", "record", "doctor"}],
    ids=" ".join,
)
def test_a_command_of_the_tutorial_works(workspace: Path, words: list[str]) -> None:
    ended = profagent(*(str(workspace) if word == "first" else word for word in words))
    assert ended.code == 0, ended.err
    assert ended.out


def test_the_tutorial_has_commands() -> None:
    assert [len(commands(page)) > 3 for page in PAGES] == [True, True]


@pytest.mark.parametrize("page", translations(ROOT), ids=lambda page: page.name)
def test_a_translation_has_the_commands_of_its_original(page: Path) -> None:
    assert commands(page) == commands(original_of(page))


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))], ids=lambda page: page.name
)
def test_the_options_of_a_page_are_those_of_the_commands(page: Path) -> None:
    """Each command of a page is known to `--help`, and so is each of its options."""
    for words in commands(page):
        verb = words[: 2 if words[0] in {"export", "keys", "aclconfig", "baseline", "nightly", "boards"} else 1]
        verb = [*verb, words[2]] if verb == ["keys", "issue"] else verb
        options = [word for word in words[: words.index("--")] if word.startswith("--")] if "--" in words else words
        told = profagent(*verb, "--help")
        assert told.code == 0, words
        for option in options:
            if option.startswith("--"):
                assert option.partition("=")[0] in told.out, f"{' '.join(verb)}: {option}"
