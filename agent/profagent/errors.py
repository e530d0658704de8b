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
└── StoreError            1  the database cannot be used
    ├── DiskFullError        the disk takes no more; a capture waits for room
    └── WorkspaceBusyError   another process writes to the workspace
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Failure(NamedTuple):
    """Failure of a command as programs read it: the object that `--json` prints in place of an answer."""

    error: str
    code: str
    hint: str
    exit_code: int


class ProfagentError(Exception):
    """Base of all errors: one line that says what is wrong, and a hint that says what to do next.

    `code` names the kind of error for programs; it stays the same when its text is improved.
    """

    exit_code = 1
    code = "failed"

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

    exit_code = 2
    code = "usage"


class UnsupportedBoardError(ProfagentError):
    """Data of a SoC whose records look similar, but have another meaning."""

    exit_code = 2
    code = "unsupported-board"


class SameBoardError(ProfagentError):
    """Two addresses with one identity: they are one board, or cannot be told apart."""

    exit_code = 2
    code = "same-board"

    def __init__(self, address: str, other: str, identity: str) -> None:
        super().__init__(
            f"the board at {address} has the identity of the one at {other}: {identity}",
            hint="name each board once; boards that were made from one image need different identities in"
            " /etc/profagent/board-id",
        )


class UnreachableError(ProfagentError):
    """Board whose daemon cannot be reached, or whose link is gone for good."""

    exit_code = 3
    code = "unreachable"

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

    code = "unknown-host"

    def __init__(self, address: str) -> None:
        super().__init__(
            f"cannot reach the board at {address}: the host name cannot be resolved",
            hint="`profagent boards` lists the boards that have a name; check the spelling, or use the IP address",
        )


class ProtocolError(UnreachableError):
    """Breach of the wire's contract by the board's daemon, or another major version of it."""

    code = "protocol"


class RefusedError(UnreachableError):
    """Refused credential, ours by the daemon or its by us: waiting does not help, somebody has to act."""

    code = "refused"


class IncompleteError(ProfagentError):
    """Bytes or records that existed and are missing from the capture."""

    exit_code = 4
    code = "incomplete"


class FormatError(ProfagentError):
    """Bytes of `file` at byte `offset` that are `found` where the format demands `expected`."""

    code = "format"

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

    code = "result"

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

    code = "fault"

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

    code = "store"


class DiskFullError(StoreError):
    """Disk, or quota, that takes no more. What was committed is safe."""

    code = "disk-full"


class WorkspaceBusyError(StoreError):
    """Lock of the workspace that another process holds."""

    code = "workspace-busy"
