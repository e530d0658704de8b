"""The errors' exit codes and texts are what scripts and people rely on."""

from __future__ import annotations

import pickle

import pytest

from profagent import errors


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.ProfagentError, 1),
        (errors.UsageError, 2),
        (errors.UnsupportedBoardError, 2),
        (errors.UnreachableError, 3),
        (errors.IncompleteError, 4),
        (errors.StoreError, 1),
        (errors.WorkspaceBusyError, 1),
    ],
)
def test_each_error_has_its_exit_code_and_says_what_to_do(error: type[errors.ProfagentError], exit_code: int) -> None:
    raised = error("it broke", hint="mend it")
    assert raised.exit_code == exit_code
    assert str(raised) == "it broke"
    assert raised.hint == "mend it"
    assert isinstance(raised, errors.ProfagentError)


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
