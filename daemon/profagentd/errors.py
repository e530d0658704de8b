"""What the daemon reports: to people one line and what to do next, to a client the end of its stream."""

from __future__ import annotations

import enum


class Fault(enum.Enum):
    """The kinds of refusal; the values are the names of gRPC's status codes."""

    INVALID = "INVALID_ARGUMENT"  # against the conversation's rules
    EXHAUSTED = "RESOURCE_EXHAUSTED"  # over a limit
    INCOMPATIBLE = "FAILED_PRECONDITION"  # another major version
    DAMAGED = "DATA_LOSS"  # a message was damaged on the way
    AWAY = "UNAVAILABLE"  # a root does not answer
    SILENT = "DEADLINE_EXCEEDED"  # no sign of life
    UNTRUSTED = "UNAUTHENTICATED"  # its certificate is revoked


class Refusal(Exception):  # noqa: N818 - the client's fault, told to it and not raised to people
    """Ends a stream; the text goes to the client."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class DaemonError(Exception):
    """Something that a person must put right; `hint` says what to do next."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
