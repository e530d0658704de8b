"""The drop-in with which systemd's service may delete JOBs: made of the roots, and known again as made so.

It is run on boards, too, by their own Python: nothing but the standard library is imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = ["TEMPLATE", "drop_in", "is_made"]

TEMPLATE = "retention.conf.in"
_MADE = "# Made by a deployment, which makes it anew; what is your own goes into another file here. "


def drop_in(template: str, roots: Iterable[str]) -> str:
    """The text that lets the service write below these roots."""
    paths = " ".join(f'"-{_for_unit(root)}"' for root in dict.fromkeys(roots))
    text = template.replace("@ROOTS@", paths)
    return f"{_MADE}{_digest(text)}\n{text}"


def is_made(text: str) -> bool:
    """Whether a text is what `drop_in` has made at some time, of whatever roots."""
    first, _, rest = text.partition("\n")
    return first == f"{_MADE}{_digest(rest)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _for_unit(path: str) -> str:
    """A path as it stands between quotes in a unit."""
    return path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
