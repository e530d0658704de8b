"""The made-up runtime library, compiled once, and a copy of it for each test: it has state."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profagent_app import marks
from profagent_app.acl.binding import runtime as bound
from profagent_app.runtime import Runtime, load
from tests.program.reader import MarksReader

SOURCES = [Path(__file__).with_name(name) for name in ("svp_acl.c", "svp_acl_data.c")]
MODEL = b"name yolo\nlayer Convolution conv1 700\nlayer Pooling pool1 350\nlayer InnerProduct fc 1400\n"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("library") / "libsvp_acl.so"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", library, *SOURCES], check=True)
    return library


@pytest.fixture
def new_library(compiled: Path, tmp_path: Path) -> Callable[[], str]:
    """Gives the path of a copy: the loader takes each copy for a library of its own."""
    numbers = iter(range(1000))

    def copy() -> str:
        return str(shutil.copy(compiled, tmp_path / f"libsvp_acl-{next(numbers)}.so"))

    return copy


@pytest.fixture
def library(new_library: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The library that Runtime() and acl load in this test."""
    path = new_library()
    monkeypatch.setenv("PROFAGENT_SVP_ACL", path)
    bound.cache_clear()
    yield path
    bound.cache_clear()


@pytest.fixture
def runtime(library: str) -> Runtime:
    return Runtime()


@pytest.fixture
def raw(new_library: Callable[[], str]) -> ctypes.CDLL:
    return load(new_library())


@pytest.fixture
def fifo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MarksReader]:
    reader = MarksReader(tmp_path)
    monkeypatch.setenv("PROFAGENT_RUN", str(tmp_path))
    monkeypatch.setattr(marks, "WRITER", marks.MarkWriter())
    yield reader
    reader.close()
