"""Which layers the records of a JOB's models are about: their `.info` files, read when they are first needed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from profagent.errors import FormatError
from profagent.formats.join import LayerJoin
from profagent.formats.model_info import parse_layer_info, parse_net_info
from profagent.ingest.mirror import LARGEST_CONTENT_BYTES

if TYPE_CHECKING:
    from profagent.formats.model_info import LayerTable, Net
    from profagent.formats.names import LogName

REMEMBERED_MODELS = 256
# Of all models that are remembered, beyond the last.
REMEMBERED_ROWS = 100_000


class JobFiles(Protocol):
    """Bytes of the JOB that were decoded before."""

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """At most `size` bytes of a log from `start` on, or all; None where they are not kept."""

    def names(self) -> list[str]:
        """Paths of the logs whose bytes were decoded before."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """A model's `.info` files as far as they can be read."""

    layers: LayerTable | None
    nets: tuple[Net, ...]

    @property
    def rows(self) -> int:
        """How many layers and nets there are."""
        return (len(self.layers.layers) if self.layers is not None else 0) + len(self.nets)

    def join(self) -> LayerJoin | None:
        return LayerJoin(self.layers, self.nets) if self.layers is not None or self.nets else None


class Joins:
    """The joins of a JOB's models; only those in use are remembered."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._known: OrderedDict[tuple[str, int], tuple[_Tables, LayerJoin | None]] = OrderedDict()
        self._rows = 0
        # Models whose files came after this was made: until then, rows may have been joined with earlier ones.
        self._told: set[tuple[str, int]] = set()

    def of(self, name: LogName) -> LayerJoin | None:
        """The join of a log's model; None where neither of its files can be read."""
        key = _key(name)
        if key not in self._known:
            self._remember(key, self._load(name))
        self._known.move_to_end(key)
        return self._known[key][1]

    def renew(self, name: LogName) -> bool:
        """Read a model's files again, one of which came; whether its records may have other layers now."""
        key, tables = _key(name), self._load(name)
        is_same = key in self._told and self._known[key][0] == tables
        self._told.add(key)
        self._remember(key, tables)
        return not is_same

    def disagreements(self, name: LogName) -> list[str] | None:
        """What the model's two files do not agree about; None where its layer table cannot be read."""
        tables = self._load(name)
        if tables.layers is None:
            return None
        return LayerJoin(tables.layers, tables.nets).disagreements() if tables.nets else []

    def _remember(self, key: tuple[str, int], tables: _Tables) -> None:
        if key in self._known:
            self._rows -= self._known.pop(key)[0].rows
        self._known[key] = (tables, tables.join())
        self._rows += tables.rows
        while len(self._known) > REMEMBERED_MODELS or (self._rows > REMEMBERED_ROWS and len(self._known) > 1):
            forgotten, (others, _) = self._known.popitem(last=False)
            self._rows -= others.rows
            self._told.discard(forgotten)

    def _load(self, name: LogName) -> _Tables:
        layers_path, nets_path = layer_info_path(name), f"data/{name.model}.{name.model_id}.net.info"
        layers, nets = small_file(self._files, layers_path), small_file(self._files, nets_path)
        return _Tables(_readable_layers(layers, layers_path), _readable_nets(nets, nets_path))


def small_file(files: JobFiles, path: str) -> bytes | None:
    """A small file whole; None where there is none, or one that is too large to be one."""
    data = files.read(path, LARGEST_CONTENT_BYTES + 1)
    return None if data is None or len(data) > LARGEST_CONTENT_BYTES else data


def layer_info_path(name: LogName) -> str:
    """The path of the layer table that names a log's records."""
    return f"data/{name.model}.{name.model_id}.layer.info"


def _key(name: LogName) -> tuple[str, int]:
    return (name.model or "", name.model_id or 0)


def _readable_layers(data: bytes | None, path: str) -> LayerTable | None:
    try:
        return None if data is None else parse_layer_info(data, path)
    except FormatError:
        return None


def _readable_nets(data: bytes | None, path: str) -> tuple[Net, ...]:
    try:
        return () if data is None else parse_net_info(data, path)
    except FormatError:
        return ()
