"""Bounds stand in `limits.py` alone, each with its unit and with what becomes of more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profagent.deploy.bundle.by_hand import MODULES
from tools.make_reference import read_bounds

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "agent/profagent", ROOT / "daemon/profagentd")
BOUND = re.compile(
    r"_?(REMEMBERED|MOST|LARGEST|LONGEST|KEPT|SHOWN|QUEUED)_\w+|\w+_(TOGETHER|LIMIT|TIMEOUT_M?S)"
    r"|\w+_PER_(BATCH|BLOCK|FETCH|GROUP|MESSAGE|PAGE|PIECE|QUERY|READ|STATEMENT)"
)
NUMBERS = re.compile(r"^(_?[A-Z]\w*(?:(?:, | = )_?[A-Z]\w*)*) = -?\d", re.MULTILINE)
# A queue or a cache whose bound is no name.
UNNAMED = re.compile(r"\b(?:deque|lru_cache|LRUCache(?:\[.*\])?|Queue|Semaphore)\((?:\w+=)?\d.*")
# Modules that a board has without the rest of the package.
ALONE = {f"{name}.py" for name in MODULES}


def _sources(package: Path) -> dict[str, str]:
    """Return the text of each module but `limits`."""
    paths = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    return {name: path.read_text("utf-8") for name, path in paths.items() if name != "limits.py"}


def _own_bounds(source: str) -> list[str]:
    """Find constants that are numbers with the name of a bound, and queues and caches with a bare number."""
    names = [name for names in NUMBERS.findall(source) for name in re.split(", | = ", names)]
    return [*filter(BOUND.fullmatch, names), *UNNAMED.findall(source)]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_module_has_a_bound_of_its_own(package: Path) -> None:
    found = {name: _own_bounds(source) for name, source in _sources(package).items() if name not in ALONE}
    assert {name: bounds for name, bounds in found.items() if bounds} == {}


def test_a_bound_elsewhere_is_found() -> None:
    for line in ("MOST_JOBS = 3", "_KEPT_BYTES, ROOM_S = 4 << 20, 1.0", "FIRST = LONGEST_NAME = 20"):
        assert len(_own_bounds(f"import os\n{line}\n")) == 1
    for line in ("@lru_cache(256)", "self._jobs: LRUCache[str, Job] = LRUCache(8)", "waiting = deque(maxlen=32)"):
        assert len(_own_bounds(line)) == 1


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_bound_has_a_module_that_keeps_to_it(package: Path) -> None:
    known = {
        each.name for bounds in read_bounds((package / "limits.py").read_text("utf-8")).values() for each in bounds
    }
    used = {name for source in _sources(package).values() for name in re.findall(r"\b[A-Z][A-Z0-9_]+\b", source)}
    assert known - used == set()


def test_a_bound_without_its_unit_or_what_becomes_of_more_makes_no_page() -> None:
    heading, bound = "# Queues\n", 'MOST_JOBS = 3\n"""JOBs: the oldest is forgotten."""\n'
    assert [each.unit for each in read_bounds(heading + bound)["Queues"]] == ["JOBs"]
    for source in (
        bound,
        heading + "MOST_JOBS = 3\n",
        heading + 'MOST_JOBS = 3\n"""JOBs."""\n',
        heading + "MOST = 1\n" + bound,
    ):
        with pytest.raises(SystemExit, match="MOST"):
            read_bounds(source)
