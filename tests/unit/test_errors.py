"""The errors' exit codes and texts are what scripts and people rely on."""

from __future__ import annotations

import pickle

from profagent import errors


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
