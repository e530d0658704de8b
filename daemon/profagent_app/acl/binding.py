"""The process's only Runtime, its functions under pyACL's names, and exceptions turned into pyACL's codes."""

from __future__ import annotations

import ctypes
import logging
from functools import lru_cache
from typing import Any, Callable, TypeVar

from profagent_app.errors import CallError, MissingNameError, OrderError
from profagent_app.runtime import Runtime

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
INVALID_PARAM = 100000
_log = logging.getLogger("profagent_app")


# One for the process: the library has one state, which the rules of order follow.
@lru_cache(maxsize=1)
def runtime() -> Runtime:
    """Return the runtime, loaded at the first call. Raises LibraryError."""
    return Runtime()


def value_of(nothing: T, function: Callable[..., T], *arguments: Any) -> tuple[T, int]:
    """Return the function's value and 0, or `nothing` and the code that the runtime returns."""
    try:
        return function(*arguments), 0
    except (OrderError, CallError) as error:
        _log.warning("%s", error)
        return nothing, error.code
    except (OSError, TypeError, ValueError, ctypes.ArgumentError) as error:  # an argument that ctypes or the OS rejects
        library_names = [each for each in arguments if isinstance(each, str) and each.startswith("svp_acl_")]
        name = library_names[0] if library_names else getattr(function, "__qualname__", repr(function))
        _log.warning("%s: %s", name, error)
        return nothing, INVALID_PARAM


def code_of(function: Callable[..., Any], *arguments: Any) -> int:
    """Return 0, or the code that the runtime returns."""
    return value_of(None, function, *arguments)[1]


def returning_code(function: str) -> Callable[..., int]:
    """Return a caller of the library's `function`, which returns its code."""

    def call(*arguments: Any) -> int:
        return code_of(runtime().call, function, *arguments)

    return _named(call, function, "Return its code.")


def returning_value(function: str) -> Callable[..., int]:
    """Return a caller of the library's `function`, which returns its number or address; 0 on failure."""

    def call(*arguments: Any) -> int:
        return value_of(0, runtime().answer, function, *arguments)[0] or 0

    return _named(call, function, "Return its number or address, 0 on failure.")


def returning_text(function: str) -> Callable[..., str]:
    """Return a caller of the library's `function`, which returns its text; "" on failure."""

    def call(*arguments: Any) -> str:
        return (value_of(b"", runtime().answer, function, *arguments)[0] or b"").decode(errors="replace")

    return _named(call, function, 'Return its text, "" on failure.')


def returning_output(function: str, kind: Callable[[], Any], place: int = 0) -> Callable[..., tuple[int, int]]:
    """Return a caller of the library's `function`, which returns the value written at `place`, and a code."""

    def call(*arguments: Any) -> tuple[int, int]:
        return value_of(0, runtime().output, function, kind(), place, *arguments)

    return _named(call, function, "Return the value that it writes, and its code.")


def refusing(module: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for the module of pyACL's names `module`, which raises MissingNameError."""

    def refuse(name: str) -> Any:
        raise MissingNameError(f"{module}.{name}")

    return refuse


def _named(call: F, name: str, text: str) -> F:
    call.__name__, call.__doc__ = name, text
    return call
