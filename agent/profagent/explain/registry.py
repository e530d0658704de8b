"""Registry of all issue codes, from the table of each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.advise.rules import own_rules
from profagent.doctor.checks import CHECKS
from profagent.errors import ERRORS
from profagent.ledger import REASONS
from profagent.store.coverage import NOT_ENDED
from profagent.tables.comparability import RULES

if TYPE_CHECKING:
    from profagent.codes import IssueCode


def issue_codes() -> dict[str, IssueCode]:
    """Return every issue code by its name, families in a row; text and remedy are whole sentences."""
    found = [
        *REASONS.values(),
        *CHECKS.values(),
        *(rule.issue for rule in own_rules()),
        *(rule.issue for rule in RULES.values()),
        *ERRORS.values(),
        NOT_ENDED,
    ]
    by_code = {each.code: each._replace(text=_sentence(each.text), remedy=_sentence(each.remedy)) for each in found}
    assert len(by_code) == len(found), "two families have the same code"
    return by_code


def _sentence(text: str) -> str:
    return text and f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
