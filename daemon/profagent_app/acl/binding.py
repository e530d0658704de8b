"""The process's one Runtime, and exceptions as pyACL's codes."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any, Callable, TypeVar

from profagent_app.errors import CallError, OrderError
from profagent_app.runtime import Runtime

T = TypeVar("T")
_log = logging.getLogger("profagent_app")


@lru_cache(maxsize=1)
def runtime() -> Runtime:
    """The library, loaded at the first call; LibraryError without one."""
    return Runtime()


def value_of(nothing: T, function: Callable[..., T], *arguments: Any) -> tuple[T, int]:
    """What the function returns and 0, or `nothing` and the code that the runtime answers."""
    try:
        return function(*arguments), 0
    except (OrderError, CallError) as error:
        _log.warning("%s", error)
        return nothing, error.code


def code_of(function: Callable[..., Any], *arguments: Any) -> int:
    """0, or the code that the runtime answers."""
    return value_of(None, function, *arguments)[1]
