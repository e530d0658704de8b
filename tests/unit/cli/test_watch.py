"""What `profagent watch` prints where its output is a terminal, and where it is none."""

from __future__ import annotations

import sys

import pytest

from profagent.watch.cli import show_text

CALL = {"event": "record", "unit": "acl_api", "name": "svp_acl_mdl_execute", "begin_us": None, "duration_us": 5.0}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_that_is_too_narrow_has_a_line_in_several(
    *, is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("COLUMNS", "40")
    show_text({**CALL, "tid": 8, "simulated": False})
    gap = "\n    " if is_terminal else "  "
    assert capsys.readouterr().out == f"--:--:--.---  svp_acl_mdl_execute{gap}5.000 us  thread 8\n"
