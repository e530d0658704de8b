"""What can be made out of a text that is nearly JSON: with comments, bare words, or brackets that are not closed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["merged", "read_near_json"]

# Nothing that a person writes is nested so deep.
DEEPEST = 32
_TOKEN = re.compile(
    r"""
    (?: \s+ | //[^\n]* | \#[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<mark> [{}\[\]:,] )
    | (?P<quote> ["'] ) (?P<text> (?: \\. | (?!(?P=quote)) [^\\\n] )* ) (?P<end> (?P=quote) )?
    | (?P<word> [^\s{}\[\]:,"'\\]+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENING, _CLOSING = ("{", "["), ("}", "]")
_OTHER_SPELLINGS = {"True": True, "False": False, "None": None}


@dataclass(frozen=True, slots=True)
class _Token:
    """One of `{}[]:,`, or else a value."""

    mark: str
    value: Any = None


def read_near_json(data: bytes) -> dict[str, Any]:
    """The keys of the outermost object, or of each of the outermost objects; empty where nothing can be made out."""
    try:
        return _Reader(data.decode(json.detect_encoding(data), "replace")).members(0)
    except RecursionError:
        return {}


class _Reader:
    """Reads on whatever comes: what fits nowhere is passed over."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens, None)

    def members(self, depth: int) -> dict[str, Any]:
        """The members of an object, up to the bracket that closes it; outermost (depth 0) of all up to the end."""
        found: dict[str, Any] = {}
        while self._next is not None:
            token = self._take()
            if token.mark in _OPENING and not depth:
                found.update(merged(self._below(token.mark, depth)))
            elif token.mark in _CLOSING and depth:
                break
            elif not token.mark and self._passes(":"):
                found[str(token.value)] = self._value(depth)
        return found

    def _value(self, depth: int) -> Any:
        """What follows; where nothing does, None."""
        if self._next is None or (self._next.mark and self._next.mark not in _OPENING):
            return None
        token = self._take()
        return self._below(token.mark, depth) if token.mark else token.value

    def _below(self, bracket: str, depth: int) -> Any:
        if depth >= DEEPEST:
            raise RecursionError
        return self.members(depth + 1) if bracket == "{" else self._items(depth + 1)

    def _items(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while self._next is not None:
            if self._passes(*_CLOSING):
                break
            if not self._passes(",", ":"):
                found.append(self._value(depth))
        return found

    def _passes(self, *marks: str) -> bool:
        """Whether one of the marks comes next; then it is taken."""
        comes = self._next is not None and self._next.mark in marks
        if comes:
            self._take()
        return comes

    def _take(self) -> _Token:
        token, self._next = self._next, next(self._tokens, None)
        assert token is not None, "who takes has looked"
        return token


def merged(value: object) -> dict[str, Any]:
    """An object's members, or those of all objects of a list; of anything else none."""
    if isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for each in value if isinstance(value, list) else ():
        found.update(each if isinstance(each, dict) else {})
    return found


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match["mark"]:
            yield _Token(match["mark"])
        elif match["quote"]:
            yield _Token("", _text(match["text"] if match["end"] else match["text"].rstrip(", \r\t")))
        elif match["word"]:
            yield _Token("", _word(match["word"]))


def _text(body: str) -> str:
    try:
        return str(json.loads(f'"{body}"', strict=False))
    except ValueError:
        return body


def _word(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return _OTHER_SPELLINGS.get(word, word)
