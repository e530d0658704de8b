"""Arguments of the Python API, checked by their annotations when a function is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import signature
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from profagent.api.names import NAMES, resolved
from profagent.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a check of its arguments by their annotations, which are resolved at the first call.

    A call with another argument raises UsageError. A text is no sequence of texts; numbers of numpy are taken.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        given = signature(function).bind(*arguments, **named)
        kinds = _kinds(function)
        for name, value in given.arguments.items():
            # A number from another library's table.
            plain = value.item() if isinstance(value, np.generic) else value
            if name in kinds and not _fits(plain, kinds[name]):
                raise UsageError(f"{name} cannot be {value!r}", hint=f"{name} is {_words(kinds[name])}")
            given.arguments[name] = plain
        return function(*given.args, **given.kwargs)

    return call


class _Namespace(dict[str, Any]):
    """Public names, beside those of a function's module: a type of it may import that module itself."""

    def __missing__(self, name: str) -> Any:
        if name in NAMES:
            return resolved(name)
        raise KeyError(name)


@cache
def _kinds(function: Callable[..., Any]) -> Mapping[str, Any]:
    found = get_type_hints(function, localns=_Namespace())
    kinds = [each for each in signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
    return {each.name: found[each.name] for each in kinds if each.name in found}


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in parts
    if origin is tuple:
        return isinstance(value, tuple | list) and len(value) == len(parts) and all(map(_fits, value, parts))
    if origin is Sequence:
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and all(_fits(each, parts[0]) for each in value)
    if origin is Mapping:
        is_table = isinstance(value, Mapping)
        return is_table and all(_fits(key, parts[0]) and _fits(each, parts[1]) for key, each in value.items())
    if parts:
        return any(_fits(value, each) for each in parts)
    # To Python an int is no float, and a bool is an int.
    return isinstance(value, int | float if kind is float else kind) and (kind is bool or not isinstance(value, bool))


def _words(kind: Any) -> str:
    """Return what values of a type are, for a hint."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin in (tuple, Sequence):
        return f"a {'pair' if origin is tuple else 'sequence'} of {_words(parts[0])}"
    if origin is Mapping:
        return f"a mapping of {_words(parts[0])} to {_words(parts[1])}"
    if parts:
        return " or ".join(_words(each) for each in parts)
    return "None" if kind is type(None) else kind.__name__
