"""A model's layer table, and the runs of fused layers that profiling records stand for (format page 2.4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, islice

from profagent.errors import FormatError
from profagent.formats.tlv import Item, Items, iter_items, read_items

__all__ = ["Layer", "LayerTable", "Run", "parse_layer_info"]

LAYER_ITEM = 0x111
LAYER_ID = 0x112
LAYER_NAME = 0x114
BATCH_LAYER = 0x121
SEGMENT_ID = 0x14B
LAYER_TYPE = 0x152
PROF_LAYER_ID = 0x157
OUTPUT_INDEX = 0x15B
# A layer takes 9 bytes of a file at least, and some hundred in memory.
MOST_LAYERS = 20_000


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer item. `layer_id` is not unique: the outputs of one Split differ in `output_index` alone."""

    layer_id: int
    name: str
    type: str
    prof_layer_id: int
    segment: int
    output_index: int
    is_batch: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive layers of one segment that share a prof_layer_id, so one profiling record; named after all."""

    index: int
    layers: tuple[Layer, ...]
    layer_id: int
    name: str
    type: str
    segment: int
    is_batch: bool


@dataclass(frozen=True, slots=True)
class LayerTable:
    """All layers in the order of the file, and their runs; `runs[i].index` is i."""

    layers: tuple[Layer, ...]
    runs: tuple[Run, ...]


def parse_layer_info(data: bytes, file: str) -> LayerTable:
    """Read a `.layer.info`; raises FormatError where it is not made of items, or a layer's item has the wrong form.

    More than MOST_LAYERS are a FormatError too. Items that are no layers are skipped. Names end at their NUL, if any;
    bytes that are not UTF-8 are escaped.
    """
    items = (item for item in iter_items(data, 0, len(data), file) if item.id == LAYER_ITEM)
    layers = tuple(_read_layer(data, item, file) for item in islice(items, MOST_LAYERS))
    one_more = next(items, None)
    if one_more is not None:
        raise FormatError(file, one_more.offset, f"{MOST_LAYERS} layers at most", "one more")
    groups = groupby(layers, key=lambda layer: (layer.segment, layer.prof_layer_id))
    return LayerTable(layers, tuple(_run(index, tuple(group)) for index, (_, group) in enumerate(groups)))


def _run(index: int, layers: tuple[Layer, ...]) -> Run:
    # Outputs of one Split are one layer to a reader.
    distinct = {(layer.layer_id, layer.name): layer for layer in layers}.values()
    return Run(
        index=index,
        layers=layers,
        layer_id=layers[0].layer_id,
        name="+".join(layer.name for layer in distinct),
        type="+".join(layer.type for layer in distinct),
        segment=layers[0].segment,
        is_batch=any(layer.is_batch for layer in layers),
    )


def _read_layer(data: bytes, container: Item, file: str) -> Layer:
    if not isinstance(container.value, bytes):
        raise FormatError(file, container.offset, "a layer item with a length", f"tag {container.tag:#06x}")
    items = read_items(data, container.nested_start, container.end, file)
    return Layer(
        layer_id=_needed(items, LAYER_ID, container.offset),
        name=_text(items, LAYER_NAME),
        type=_text(items, LAYER_TYPE),
        prof_layer_id=_needed(items, PROF_LAYER_ID, container.offset),
        segment=items.integer(SEGMENT_ID) or 0,
        output_index=items.integer(OUTPUT_INDEX) or 0,
        is_batch=items.integer(BATCH_LAYER) == 1,
    )


def _needed(items: Items, item_id: int, offset: int) -> int:
    value = items.integer(item_id)
    if value is None:
        raise FormatError(items.file, offset, f"item {item_id:#05x} in a layer", "none")
    return value


def _text(items: Items, item_id: int) -> str:
    """Give a text item up to its NUL, empty where there is none."""
    return (items.content(item_id) or b"").split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
