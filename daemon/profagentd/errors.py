"""Errors of the daemon: DaemonError for people, with a hint, and Refusal, which ends a client's stream."""

from __future__ import annotations

import enum


class Fault(enum.Enum):
    """Kinds of refusal; the values are the names of gRPC's status codes."""

    INVALID = "INVALID_ARGUMENT"  # a message breaks the protocol
    EXHAUSTED = "RESOURCE_EXHAUSTED"  # a limit is reached
    INCOMPATIBLE = "FAILED_PRECONDITION"  # the client speaks another major version
    DAMAGED = "DATA_LOSS"  # a message was damaged on the way
    AWAY = "UNAVAILABLE"  # a root does not answer
    SILENT = "DEADLINE_EXCEEDED"  # the client sent nothing for SILENCE_S
    UNTRUSTED = "UNAUTHENTICATED"  # the client's certificate is revoked


class Refusal(Exception):  # noqa: N818 - the client's fault, told to it and not raised to people
    """Refusal of a call or message; it ends the stream, and its text is sent to the client."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class DaemonError(Exception):
    """Error that a person has to resolve; `hint` says what to do next."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
