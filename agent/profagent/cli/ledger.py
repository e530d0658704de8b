"""The ledger as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def ledger_lines(ledger: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each reason: grade, reason, count."""
    return [f"{grade}: {reason} ({count})" for grade, reasons in ledger.items() for reason, count in reasons.items()]
