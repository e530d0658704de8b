"""Type of an issue code: the name of something that is not as it should be, with its severity, meaning and remedy.

Each family has one table, in the module that makes its things: `ledger.REASONS`, `doctor.checks.CHECKS`, the files in
`advise/rules`, `tables.comparability.RULES` and `errors.ERRORS`. `explain.registry` joins them, with
`store.coverage.NOT_ENDED`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class IssueFamily(StrEnum):
    """Family of issue codes: the part of profagent that uses them."""

    LEDGER = "ledger"
    CHECK = "check"
    ADVICE = "advice"
    COMPARISON = "comparison"
    EXIT = "exit"


class Severity(StrEnum):
    """Severity of an issue, in the words of its family."""

    LOSS = "loss"
    NOTE = "note"
    # The worst mark that a check gives.
    BAD = "bad"
    UNKNOWN = "unknown"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    # Of advice, and of a check that only lists.
    INFO = "info"
    BLOCKING = "blocking"
    # Of documents of earlier versions: no rule blocks layers and leaves the rest.
    BLOCKS_LAYERS = "blocks layers"
    BLOCKS_METRIC = "blocks a metric"
    INFORMATIVE = "informative"
    ERROR = "error"


class IssueCode(NamedTuple):
    """Code of an issue. `exit_code` is that of commands whose result depends on it, 0 where it changes none.

    `otherwise` says when an entry of the ledger has the other severity; it is empty where none has.
    """

    family: IssueFamily
    code: str
    severity: Severity
    text: str
    remedy: str
    exit_code: int = 0
    otherwise: str = ""

    @property
    def meaning(self) -> str:
        """Text, with the case of the other severity if there is one."""
        other = Severity.NOTE if self.severity is Severity.LOSS else Severity.LOSS
        return f"{self.text} A {other} when {self.otherwise}." if self.otherwise else self.text
