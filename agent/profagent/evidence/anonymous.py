"""A kit without names: of models in file names, of layers in `.info` files and the vendor's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.evidence.aliases import Aliases
from profagent.evidence.info_aliases import InfoAliases
from profagent.evidence.table_aliases import with_aliases
from profagent.formats.names import LogKind, parse_log_name

__all__ = ["Anonymous"]

if TYPE_CHECKING:
    from profagent.formats.names import LogName

_INFO = (LogKind.NET_INFO, LogKind.LAYER_INFO)
_MARKER_TEXT = b"made by profagentd --simulate\n"


class Anonymous:
    """Replaces names, each by the same alias throughout. Give the `.info` files first: they tell names apart."""

    def __init__(self) -> None:
        self._models = Aliases("M")
        self._layers = Aliases("L")
        self._infos = InfoAliases(self._layers)

    @property
    def replaced(self) -> tuple[str, ...]:
        """What was replaced, for the manifest."""
        return (
            f"{len(self._models)} names of models in names of files, by as many letters",
            f"{len(self._layers)} names of layers in .layer.info and vendor tables, by as many letters",
            f"{self._infos.zeroed} other fields of .info files, by as many zeros",
        )

    def path(self, path: str) -> str:
        """A path in the JOB, with the model's alias."""
        name = parse_log_name(path)
        if name is None or not name.model:
            return path
        start = _model_start(path, name)
        return f"{path[:start]}{self._models.of(name.model)}{path[start + len(name.model) :]}"

    def content(self, path: str, data: bytes) -> bytes:
        """A file of the JOB by its own path, with as many bytes; those of the simulated board's marker may be fewer."""
        name = parse_log_name(path)
        if name is None:
            return _MARKER_TEXT
        return self._infos.replaced(data, path) if name.kind in _INFO else data

    def table(self, data: bytes, file: str) -> bytes:
        """The vendor's table with aliases for all texts but titles and types. Raises FormatError for another file."""
        return with_aliases(data, file, self._layers)


def _model_start(path: str, name: LogName) -> int:
    """Where the model's name begins: behind the folder, or behind the prefix and the device (format page 2.1)."""
    if name.kind in _INFO:
        return path.index("/") + 1
    return path.index(".", path.index(".") + 1) + 1
