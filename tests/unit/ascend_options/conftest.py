"""The fixture of all tests of `options check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ascend_options.checking import Checking


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checking:
    return Checking(tmp_path, capsys)
