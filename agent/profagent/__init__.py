"""Host side of profagent; its Python API is `profagent.api`, whose names are those of this package."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# The distribution installs on the board's older Python, too, for the daemon alone.
if sys.version_info < (3, 11):  # noqa: UP036 - this is what tells an older one
    sys.exit("profagent needs Python 3.11 or later; this Python has profagentd only")

__version__ = "0.2.0"

_NAMES = "profagent.api.names"
# Functions of the API with the name of a subpackage.
_PACKAGES = ("diff", "record", "watch")


class _Callable(ModuleType):
    """Subpackage that is called as the function of its name in the API."""

    @property
    def __wrapped__(self) -> Any:
        return import_module(_NAMES).resolved(self.__name__.rpartition(".")[2])

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return str(self.__wrapped__.__doc__)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__wrapped__(*arguments, **named)


class _Package(ModuleType):
    """Package that loads a name of the API when it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        if name == "__all__" or not name.startswith("_"):
            return import_module(_NAMES).resolved(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # The import of a subpackage sets it here.
        if name in _PACKAGES and isinstance(value, ModuleType):
            value.__class__ = _Callable
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__all__)


sys.modules[__name__].__class__ = _Package
