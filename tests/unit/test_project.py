"""The project as a whole: one version, pins that anyone can install, pages, errors and tools."""

from __future__ import annotations

import ast
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

import profagent
import profagentd
from profagent import errors
from tools.check_translations import translations

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINNED = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
CLASS = re.compile(r"\s*class ([A-Za-z]\w*)[:([]")


def pins(name: str) -> dict[str, str]:
    """Package and version of each pin."""
    return dict(PIN.findall((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")))


def test_both_sides_have_the_version_of_the_distribution() -> None:
    assert profagent.__version__ == profagentd.__version__ == PYPROJECT["project"]["version"]


def test_the_changelog_has_the_version_in_its_form() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    unreleased, *releases = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    assert unreleased == "Unreleased"
    assert releases[0].startswith(f"{profagent.__version__} - ")
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", release) for release in releases)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", changelog, re.MULTILINE)) <= kinds


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.name)
def test_pins_have_hashes_and_name_no_registry(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host", text)


def test_hosts_run_what_was_tested() -> None:
    assert pins("host").items() <= pins("dev").items()
    assert dict(PIN.findall((ROOT / "requirements" / "host.versions").read_text("utf-8"))) == pins("host")


def test_each_dependency_is_pinned_where_it_is_wanted() -> None:
    names = {re.split(r"[<>=; ]", entry)[0]: entry for entry in PYPROJECT["project"]["dependencies"]}
    board = {name for name, entry in names.items() if "python_version >=" not in entry}
    host = {name for name, entry in names.items() if "python_version <" not in entry}
    assert board <= pins("board39").keys()
    assert host <= pins("host").keys()


def test_an_older_python_is_told_so_in_one_sentence() -> None:
    """The distribution installs there for the daemon; the agent needs a newer one."""
    program = "import sys; sys.version_info = (3, 10, 13); import profagent.cli.main"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stderr == "profagent needs Python 3.11 or later; this Python has profagentd only\n"
    assert found.returncode == 1


# The pages: every link leads somewhere, and every hint names a page that exists; `make check-docs` has generated ones

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FOLDERS = {"tutorial", "howto", "reference", "internals"}


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_one_name_is_one_class() -> None:
    """The daemon and the agent have a class each for sources, and for some things that go over the wire.

    The Python API calls its classes as users do.
    """
    of_the_api = {"Answer", "Session", "Table", "Workspace"}
    on_both_sides = {
        "Chunk",
        "Completed",
        "RecordedLoss",
        "Loss",
        "Mount",
        "NpuProcess",
        "Profiling",
        "Removed",
    }
    on_both_sides |= {"Source", "Started"}
    found = defaultdict(list)
    for side in ("agent", "daemon"):
        for file in (ROOT / side).rglob("*.py"):
            for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
                if (named := CLASS.match(line)) and not (named[1] in of_the_api and file.parent.name == "api"):
                    found[named[1]].append(f"{file.relative_to(ROOT)}:{number}")
    twice = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in on_both_sides} == {}
    assert all(len({place.split("/")[0] for place in twice[name]}) == len(twice[name]) for name in on_both_sides)


def test_every_module_is_imported_or_registered_somewhere() -> None:
    """What is forgotten of a new source, format or command: its line of SOURCES, FORMATS or GROUPS."""
    places = [ROOT / "agent/profagent", ROOT / "daemon/profagentd"]
    modules = {
        ".".join((root.name, *file.relative_to(root).with_suffix("").parts)): file.read_bytes()
        for root in places
        for file in root.rglob("*.py")
    }
    used: set[str] = set()
    for source in (*modules.values(), *(file.read_bytes() for file in (ROOT / "tools").rglob("*.py"))):
        used |= _named_modules(ast.parse(source))
    alone = {name for name in modules if not name.endswith(("__init__", "__main__"))} - used
    assert alone == set()


def _named_modules(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Registered as `module:name`, of commands below the package.
            name = node.value.partition(":")[0]
            found |= {name, f"profagent.{name}"}
    return found


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


def test_each_page_is_within_two_clicks_of_the_readme() -> None:
    """Each language has a README of its own, which leads to the pages in this language."""
    pages, chinese = {*ROOT.glob("docs/**/*.md")}, {*translations(ROOT)}
    for readme, wanted in (("README.md", pages - chinese), ("README.zh.md", chinese - {ROOT / "README.zh.md"})):
        first = links(ROOT / readme)
        near = first.union(*map(links, first))
        assert sorted(wanted - near) == []


def links(page: Path) -> set[Path]:
    """Return the pages that a page links to."""
    targets = re.findall(r"\]\(([^)#\s]+\.md)[)#]", page.read_text("utf-8"))
    return {(page.parent / target).resolve() for target in targets}


# The errors' exit codes and texts are what scripts and people rely on


def test_a_format_error_names_file_offset_and_what_was_expected() -> None:
    error = errors.FormatError("data/a.done", 17, "a number", "'x'")
    assert str(error) == "data/a.done: byte 17: expected a number, found 'x'"
    assert (error.file, error.offset, error.expected, error.found) == ("data/a.done", 17, "a number", "'x'")
    assert error.exit_code == 1
    assert error.hint


def test_a_format_error_of_a_file_that_is_not_utf8_can_be_printed() -> None:
    error = errors.FormatError("data/\udcff", 0, "a number", "'x'")
    assert str(error).encode("utf-8").startswith(b"data/\\udcff: byte 0")
    assert error.file == "data/\udcff"


def test_an_error_comes_whole_from_another_process() -> None:
    for error in (errors.ResultError("a.csv", 7, "it is cut off"), errors.UsageError("it broke", hint="mend it")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


# The scripts under tools/: which Python 3.9 is taken, and what happens where something is missing

TOOLS = Path(__file__).resolve().parents[2] / "tools"


class Machine:
    """An environment in which only the programs that a test puts there can be found."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.pyenv = folder / "pyenv"
        self.programs.mkdir()
        for name in ("bash", "chmod", "dirname", "mkdir", "rm", "sh", "touch"):
            (self.programs / name).symlink_to(str(shutil.which(name)))

    def add_program(self, path: Path, script: str) -> Path:
        """A program that is a shell script."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def add_python(self, path: Path, version: str) -> Path:
        """A program that says that it is this version of Python, whatever it is asked."""
        return self.add_program(path, f"echo {version}")

    def add_apt(self) -> None:
        """An apt-get that says what it is asked, and gives Python its venv module."""
        self.add_program(self.programs / "apt-get", f'echo "apt-get $*"; touch {self.programs}/installed')

    def run(self, tool: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one of the tools to its end."""
        return subprocess.run(
            [str(TOOLS / tool), *map(str, arguments)],
            env={"PATH": str(self.programs), "PYENV_ROOT": str(self.pyenv), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without any Python."""
    return Machine(tmp_path)


def test_a_named_python_of_another_version_is_an_error(machine: Machine, tmp_path: Path) -> None:
    machine.add_python(machine.programs / "python3.9", "3.9")
    named = machine.add_python(tmp_path / "mine", "3.11")
    found = machine.run("find_python39", PYTHON39=str(named))
    assert (found.returncode, found.stdout) == (2, "")
    assert "is not a Python 3.9" in found.stderr


def test_without_a_39_the_last_line_says_what_did_not_run(machine: Machine) -> None:
    run = machine.run("test_on_39")
    assert run.returncode == 0
    assert run.stdout.splitlines()[-1].startswith("NOT RUN: the daemon's tests on Python 3.9")


def test_a_missing_program_is_installed_for_root_and_said(machine: Machine) -> None:
    machine.add_program(machine.programs / "id", "echo 0")
    machine.add_apt()
    installed = machine.run("need", "openssl", "openssl-package")
    assert installed.returncode == 0, installed.stderr
    said, update, install = installed.stdout.splitlines()
    assert said.startswith("installing openssl-package, which has openssl")
    assert (update, install.split()[-1]) == ("apt-get update", "openssl-package")


@pytest.mark.parametrize(("has_it", "said"), [(True, "without the disk: "), (False, "")])
def test_a_command_does_without_waiting_for_the_disk_where_it_can(machine: Machine, *, has_it: bool, said: str) -> None:
    machine.add_program(machine.programs / "id", "echo 1000")
    machine.add_program(machine.programs / "program", 'echo "$1"; exit 5')
    if has_it:
        machine.add_program(machine.programs / "eatmydata", 'printf "without the disk: "; "$@"')
    ran = machine.run("unsynced", "program", "word")
    assert (ran.returncode, ran.stdout) == (5, f"{said}word\n")
    assert ("apt-get install eatmydata" in ran.stderr) is not has_it
