"""Names that are replaced: each by the same other one wherever it stands, with as many bytes."""

from __future__ import annotations

import re
from collections import defaultdict
from string import ascii_lowercase

__all__ = ["Aliases"]

# What joins the names of fused layers; the first is that of profagent, others may be the vendor's.
_JOINTS = (re.compile(r"(\+)"), re.compile(r"([,;|& ]+)"))
# From so many letters on, they say what was replaced.
LETTERED_FROM = 4


class Aliases:
    """What names of one kind, `letter`, were replaced by. Aliases are small letters, behind the kind's own."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._known: dict[str, str] = {}
        self._of_length: dict[int, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._known)

    def of(self, name: str, length: int | None = None) -> str:
        """The alias of one name; `length` is in bytes, that of UTF-8 unless given."""
        if name not in self._known:
            size = len(name.encode("utf-8", "surrogateescape")) if length is None else length
            self._known[name] = self._made(size)
        return self._known[name]

    def of_cell(self, text: str) -> str:
        """The alias of a cell of a table: the name that it is, or those that it joins by whatever."""
        if text in self._known:
            return self._known[text]
        parts = [part for chunk in _JOINTS[0].split(text) for part in self._parts(chunk)]
        return "".join(part if _is_joint(part) else self.of(part) for part in parts)

    def _parts(self, chunk: str) -> list[str]:
        """A known name whole, else what stands between joints."""
        return [chunk] if chunk in self._known else _JOINTS[1].split(chunk)

    def _made(self, size: int) -> str:
        number = self._of_length[size]
        self._of_length[size] += 1
        letter = self._letter if size >= LETTERED_FROM else ""
        digits = []
        for _ in range(size - len(letter)):
            number, digit = divmod(number, len(ascii_lowercase))
            digits.append(ascii_lowercase[digit])
        return letter + "".join(reversed(digits))


def _is_joint(part: str) -> bool:
    return not part or any(joint.fullmatch(part) for joint in _JOINTS)
