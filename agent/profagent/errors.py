"""The errors that profagent raises on purpose, each with the exit code that a script sees.

ProfagentError            1  the answer is 'no', or something went wrong
├── UsageError            2  the command line or a setting cannot be right
├── UnsupportedBoardError 2  the data is of another SoC than SS928/SS927
├── SameBoardError        2  two addresses lead to one board
├── UnreachableError      3  the board cannot be reached
│   ├── UnknownHostError     its host name has no address
│   ├── ProtocolError        it can be reached, but breaks the protocol
│   └── RefusedError         it can be reached, but one side refuses the other's credentials
├── IncompleteError       4  data that existed is missing
├── FormatError           1  bytes that are not what their file's format says
├── ResultError           1  a file of another tool's results is damaged, or something else
├── FaultError            1  profagent itself has failed, and only a part of its work ended
├── StoreError            1  the database cannot be used
│   ├── DiskFullError        the disk takes no more; a capture waits for room
│   └── WorkspaceBusyError   another process writes to the workspace
└── LakeError             1  a lake cannot be read or written

Each class has its row in ERRORS: its code, its exit code, what it means, and what to do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from profagent.codes import IssueCode, IssueFamily, Severity


class Failure(NamedTuple):
    """Failure of a command as programs read it: the object that `--json` prints in place of an answer."""

    error: str
    code: str
    hint: str
    exit_code: int


# By code, filled by `_error` while this module is imported, and never changed afterwards.
ERRORS: dict[str, IssueCode] = {}


def _error(code: str, exit_code: int, text: str, remedy: str) -> IssueCode:
    assert code not in ERRORS, code
    ERRORS[code] = IssueCode(IssueFamily.EXIT, code, Severity.ERROR, text, remedy, exit_code)
    return ERRORS[code]


class ProfagentError(Exception):
    """Base of all errors: one line that says what is wrong, and a hint that says what to do next.

    `code` names the kind of error for programs; it stays the same when its text is improved.
    """

    issue = _error(
        "failed",
        1,
        "The answer is 'no', or something went wrong that has no code of its own.",
        "Do what the hint below the message says.",
    )
    code, exit_code = issue.code, issue.exit_code

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        # Printed below the message: what the user can do next.
        self.hint = hint

    def failure(self) -> Failure:
        """Return the error as programs read it."""
        return Failure(str(self), self.code, self.hint, self.exit_code)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts for pickling: subclasses build their message from arguments that are gone."""
        return _said_again, (type(self), self.args, self.__dict__)


def _said_again(kind: type[ProfagentError], words: tuple[Any, ...], known: dict[str, Any]) -> ProfagentError:
    error = kind.__new__(kind, *words)
    error.__dict__.update(known)
    return error


class UsageError(ProfagentError):
    """Command line or setting that cannot be right."""

    issue = _error(
        "usage",
        2,
        "The command line or a setting cannot be right.",
        "Correct the argument that the message names; `--help` behind the command explains it.",
    )
    code, exit_code = issue.code, issue.exit_code


class UnsupportedBoardError(ProfagentError):
    """Data of a SoC whose records look similar, but have another meaning."""

    issue = _error(
        "unsupported-board",
        2,
        "The data is of another SoC than SS928 or SS927.",
        "Use the vendor's tool for that SoC.",
    )
    code, exit_code = issue.code, issue.exit_code


class SameBoardError(ProfagentError):
    """Two addresses with one identity: they are one board, or cannot be told apart."""

    issue = _error(
        "same-board",
        2,
        "Two addresses lead to one board, or to two boards with one identity.",
        "Name each board once; give copies of one image identities of their own in /etc/profagent/board-id.",
    )
    code, exit_code = issue.code, issue.exit_code

    def __init__(self, address: str, other: str, identity: str) -> None:
        super().__init__(
            f"the board at {address} has the identity of the one at {other}: {identity}",
            hint="name each board once; boards that were made from one image need different identities in"
            " /etc/profagent/board-id",
        )


class UnreachableError(ProfagentError):
    """Board whose daemon cannot be reached, or whose link is gone for good."""

    issue = _error(
        "unreachable",
        3,
        "The board cannot be reached.",
        "Check the address, that profagentd runs there, and the port: `profagent doctor --board BOARD`.",
    )
    code, exit_code = issue.code, issue.exit_code

    @classmethod
    def at(cls, address: str, why: str) -> UnreachableError:
        """Return the error for a board at `HOST:PORT`."""
        return UnreachableError(
            f"cannot reach the board at {address}: {why}",
            hint="check the address, that profagentd runs there, and that the port is not blocked; a local one that"
            " demands TLS wants --keys DIR",
        )


class UnknownHostError(UnreachableError):
    """Host name without an address, which waiting does not help: somebody has to correct it."""

    issue = _error(
        "unknown-host",
        3,
        "The board's host name has no address.",
        "Check the spelling, or use the IP address; `profagent boards` lists the boards that have a name.",
    )
    code, exit_code = issue.code, issue.exit_code

    def __init__(self, address: str) -> None:
        super().__init__(
            f"cannot reach the board at {address}: the host name cannot be resolved",
            hint="`profagent boards` lists the boards that have a name; check the spelling, or use the IP address",
        )


class ProtocolError(UnreachableError):
    """Breach of the wire's contract by the board's daemon, or another major version of it."""

    issue = _error(
        "protocol",
        3,
        "The board's daemon breaks the protocol, or speaks another major version of it.",
        "Install the same version on both sides.",
    )
    code, exit_code = issue.code, issue.exit_code


class RefusedError(UnreachableError):
    """Refused credential, ours by the daemon or its by us: waiting does not help, somebody has to act."""

    issue = _error(
        "refused",
        3,
        "The daemon refuses this host's certificate, or this host the daemon's.",
        "Check `--keys`, and whether a certificate has ended or was revoked: `profagent doctor --board BOARD`.",
    )
    code, exit_code = issue.code, issue.exit_code


class IncompleteError(ProfagentError):
    """Bytes or records that existed and are missing from the capture."""

    issue = _error(
        "incomplete-data",
        4,
        "Data that existed is missing from the result.",
        "Read what is missing and what to do: `profagent ledger SESSION`.",
    )
    code, exit_code = issue.code, issue.exit_code


class FormatError(ProfagentError):
    """Bytes of `file` at byte `offset` that are `found` where the format demands `expected`."""

    issue = _error(
        "format",
        1,
        "Bytes of a file are not what its format says.",
        "Copy the file again if it is damaged; else report it with the message.",
    )
    code, exit_code = issue.code, issue.exit_code

    def __init__(
        self,
        file: str,
        offset: int,
        expected: str,
        found: str,
        *,
        hint: str = "the file is damaged or not of a known SDK; its bytes are kept, report it with this line",
    ) -> None:
        shown = file.encode("utf-8", "backslashreplace").decode("utf-8")
        super().__init__(f"{shown}: byte {offset}: expected {expected}, found {found}", hint=hint)
        # The parts of the sentence, for callers that mark the place in the ledger.
        self.file = file
        self.offset = offset
        self.expected = expected
        self.found = found


class ResultError(ProfagentError):
    """File of another tool that cannot be read from a line on, or at all: line 0.

    `unread` is the first and the last byte of what is not read, None where unknown, and its amount.
    """

    issue = _error(
        "result",
        1,
        "A file of another tool's results is damaged, or is something else.",
        "Write it anew with that tool, or import the others without it.",
    )
    code, exit_code = issue.code, issue.exit_code

    def __init__(
        self,
        file: object,
        line: int,
        what: str,
        *,
        hint: str = "",
        unread: tuple[int | None, int | None, int] = (None, None, 1),
    ) -> None:
        where = f"{file}: line {line}" if line else f"{file}"
        super().__init__(f"{where}: {what}", hint=hint or "write it anew, or import the others without it")
        # Line of the file, 0 for the whole file.
        self.line = line
        self.unread = unread


class FaultError(ProfagentError):
    """Fault of profagent itself that ended the capture of one of several boards."""

    issue = _error(
        "fault",
        1,
        "An error in profagent itself ended a part of its work.",
        "Report it with the message; recording this board alone shows the whole traceback.",
    )
    code, exit_code = issue.code, issue.exit_code

    @classmethod
    def of(cls, error: Exception) -> ProfagentError:
        """Return the error itself if it was raised on purpose, else a FaultError about it."""
        if isinstance(error, ProfagentError):
            return error
        return cls(
            f"an error in profagent itself ended this capture: {type(error).__name__}: {error}",
            hint="report it with this line; recording this board alone shows the whole traceback",
        )


class StoreError(ProfagentError):
    """Database that cannot be opened, read or written."""

    issue = _error(
        "store",
        1,
        "The database cannot be opened, read or written.",
        "Do what the hint below the message says; `profagent doctor` checks the workspace.",
    )
    code, exit_code = issue.code, issue.exit_code


class DiskFullError(StoreError):
    """Disk, or quota, that takes no more. What was committed is safe."""

    issue = _error(
        "host-disk-full",
        1,
        "The disk of this host, or a quota on it, takes no more. What was committed is safe.",
        "Make room; a running capture then goes on.",
    )
    code, exit_code = issue.code, issue.exit_code


class WorkspaceBusyError(StoreError):
    """Lock of the workspace that another process holds."""

    issue = _error(
        "workspace-busy",
        1,
        "Another process writes to the workspace.",
        "Wait until it has ended, or name another workspace: `--workspace DIR`.",
    )
    code, exit_code = issue.code, issue.exit_code


class LakeError(ProfagentError):
    """Error of a lake that cannot be read or written."""

    issue = _error(
        "lake",
        1,
        "A lake cannot be read or written.",
        "Check its address, permissions and credentials: `profagent doctor --lake URL`.",
    )
    code, exit_code = issue.code, issue.exit_code


# No class: it ends a command from outside.
INTERRUPTED = _error(
    "interrupted", 130, "A second Ctrl-C stopped the command before its work was done.", "Start it again."
)
