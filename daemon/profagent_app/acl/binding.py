"""The process's one Runtime, and exceptions as pyACL's codes."""

from __future__ import annotations

import ctypes
import logging
from functools import lru_cache
from typing import Any, Callable, TypeVar

from profagent_app.errors import CallError, OrderError
from profagent_app.runtime import Runtime

T = TypeVar("T")
INVALID_PARAM = 100000
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
    except (OSError, TypeError, ValueError, ctypes.ArgumentError) as error:  # what no argument may be
        _log.warning("%s: %s", getattr(function, "__qualname__", function), error)
        return nothing, INVALID_PARAM


def code_of(function: Callable[..., Any], *arguments: Any) -> int:
    """0, or the code that the runtime answers."""
    return value_of(None, function, *arguments)[1]
