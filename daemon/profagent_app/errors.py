"""Errors of the program's side. Each says what to do next.

ProgramError
├── LibraryError    the runtime library is missing, or lacks a function
│   └── MissingNameError    pyACL has the name, `profagent_app.acl` has not; an AttributeError, too
├── OrderError      a call against the order of the profiling pages; the library was not called
└── CallError       the runtime library refused a call
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """Return code of the runtime: its name in the public header, and the most likely cause."""

    name: str
    cause: str


CODES = {
    100000: Code("INVALID_PARAM", "an argument is out of range, or the model is not loaded or subscribed already"),
    100001: Code("UNINITIALIZE", "svp_acl_init, or the call that this one belongs to, was not made before"),
    100002: Code("REPEAT_INITIALIZE", "it was initialised already"),
    100010: Code("INVALID_PROFILING_CONFIG", "the JOB directory cannot be made in the result path"),
    100037: Code("REPEAT_FINALIZE", "it was stopped already"),
    100042: Code("PROF_ALREADY_RUN", "profiling was started already"),
    148047: Code(
        "PROF_API_CONFLICT",
        "acl.json has a `profiler` object, or subscription and profiling are used at a time: take one of them",
    ),
    500000: Code("INTERNAL_ERROR", "profiling was finalised while started, or the device refused"),
}


class ProgramError(Exception):
    """Base of all errors of the program's side."""


class LibraryError(ProgramError):
    """The runtime library cannot be loaded."""


class MissingNameError(LibraryError, AttributeError):
    """Name of pyACL that is neither in the SS928's runtime nor on the profiling pages."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: not in the SS928's runtime; docs/reference/program.md has the names that are")


class OrderError(ProgramError):
    """Call against the rules of the profiling pages; `code` is what the runtime would return."""

    def __init__(self, function: str, rule: str, code: int) -> None:
        super().__init__(f"{function}: {rule}")
        self.function, self.rule, self.code = function, rule, code


class CallError(ProgramError):
    """The runtime library refused a call with `code`."""

    def __init__(self, function: str, code: int) -> None:
        known = CODES.get(code)
        text = f"{known.name}): {known.cause}" if known else "a code that no public header explains)"
        super().__init__(f"{function} failed with {code} ({text}")
        self.function, self.code = function, code
