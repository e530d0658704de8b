"""Join of aicore and aicpu records with layers, by each record's own sequence number (the-format.md 3.1).

A record is never named by its place in the file, so records that the runtime's filter dropped shift nothing. A sequence
number whose layer is uncertain gets none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.names import LogKind
from profagent.limits import REMEMBERED_SEGMENTS, REMEMBERED_SEQUENCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from profagent.formats.model_info import LayerTable, Net, Run
    from profagent.formats.records import Unit

UNKNOWN_LAYER = -1
# One more than a record's sequence number can be.
SEQUENCE_SPAN = 2**32


@dataclass(frozen=True, slots=True)
class _NetRuns:
    """Runs of one net, whether their number agrees with the announced one, and how many passes it may take."""

    runs: Sequence[Run]
    agrees: bool
    max_loop: int = 1

    @property
    def may_repeat(self) -> bool:
        """True if the rules for several pictures certainly hold."""
        return self.agrees and self.max_loop == 1

    @property
    def is_batch(self) -> list[bool]:
        return [run.is_batch for run in self.runs]

    def table_index(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the index in the whole table; UNKNOWN_LAYER stays."""
        # UNKNOWN_LAYER is -1, and as an index finds the last entry: itself.
        places = np.array([run.index for run in self.runs] + [UNKNOWN_LAYER], dtype=np.int32)
        return places[index]


class LayerJoin:
    """Join of one model's records with its layer table; without a table, no record has a layer."""

    def __init__(self, table: LayerTable | None, nets: Sequence[Net]) -> None:
        # The runs of all nets in the order of the table.
        self._runs: Sequence[Run] = table.runs if table else ()
        # The nets' own counts by id; empty where the model's `.net.info` is missing.
        self._nets = {net.net_id: net for net in nets}
        # False for a table whose layers all have one segment id: then a net's runs follow from the counts.
        self._has_segments = len({run.segment for run in self._runs}) > 1
        # Layers of the first sequence numbers of a segment: every inference of a model asks for the same ones.
        self._first: dict[tuple[int, int, int, tuple[int, ...]], npt.NDArray[np.int32]] = {}

    def layer_index(
        self,
        net: int,
        sequence: npt.NDArray[Any],
        batch_num: int,
        input_pic_num: int,
        online_batch_num: Sequence[int] = (),
    ) -> npt.NDArray[np.int32]:
        """Return the index into `table.runs` of each sequence number of an aicore segment, or UNKNOWN_LAYER.

        `net` is the word 0xFC of the records. The sequence runs over all batch runs of the segment: as many as the
        pictures need, or of the sizes `online_batch_num`. In a run, the layers between batch layers come once for each
        picture. The numbering of loops is unknown, so in them only a first pass has layers.
        """
        key = (net, batch_num, input_pic_num, tuple(online_batch_num))
        first = self._first.get(key)
        if first is None:
            first = self._layer_index(*key, np.arange(REMEMBERED_SEQUENCES))
            # Bounded by leaving out, not by replacing: a model has few segments, and they recur.
            if len(self._first) < REMEMBERED_SEGMENTS:
                self._first[key] = first
        try:
            known: npt.NDArray[np.int32] = first[sequence]
        except IndexError:
            return self._layer_index(*key, sequence.astype(np.int64))
        return known

    def _layer_index(
        self, net: int, batch_num: int, input_pic_num: int, online_batch_num: Sequence[int], at: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        segment = self._segment(net)
        if not segment.runs:
            return np.full(at.shape, UNKNOWN_LAYER, dtype=np.int32)
        batches = _batches(batch_num, input_pic_num, online_batch_num)
        # Without certain counts a repetition could be taken for other layers, so only the first pass is named.
        if segment.may_repeat and batches:
            return segment.table_index(_index_in_batches(segment.is_batch, batches, at))
        return segment.table_index(_index_in_first_pass(segment.is_batch, batches, at))

    def aicpu_layer_index(self, net: int, sequence: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Return the index into `table.runs` of each aicpu sequence number, loop × layers + i (the-format.md 3.2).

        UNKNOWN_LAYER unless the table lists the segment's layers one by one.
        """
        segment, known = self._segment(net), self._nets.get(net)
        layers = len(segment.runs)
        if not layers or not self._has_segments or any(len(run.layers) > 1 for run in segment.runs):
            return np.full(sequence.shape, UNKNOWN_LAYER, dtype=np.int32)
        loops = (known.max_loop if known else None) or 1
        at = sequence.astype(np.int64)
        return segment.table_index(np.where(at < layers * loops, at % layers, UNKNOWN_LAYER))

    def batch_layers(self, net: int) -> tuple[bool, ...] | None:
        """Return for each run of a net whether it is a batch layer; None if it may loop, or the counts disagree."""
        segment = self._segment(net)
        return tuple(segment.is_batch) if segment.runs and segment.may_repeat else None

    def disagreements(self) -> list[str]:
        """Return where the layer table and the nets' own counts differ, a sentence each."""
        found: list[str] = []
        counts = [net.prof_layer_count for net in self._nets.values() if net.prof_layer_count is not None]
        if not self._has_segments:
            found += _differs("the table", "runs of layers", len(self._runs), sum(counts) if counts else None)
        for net_id, net in self._nets.items():
            segment, name = self._segment(net_id), f"net {net_id}"
            if self._has_segments:
                found += _differs(name, "runs of layers", len(segment.runs), net.prof_layer_count)
            found += _differs(name, "batch layers", sum(segment.is_batch), net.batch_layer_count)
        return found

    def _segment(self, net: int) -> _NetRuns:
        """Return the runs of a net: by the layers' own segment ids, else behind those of the nets before it."""
        if self._has_segments:
            runs: Sequence[Run] = [run for run in self._runs if run.segment == net]
        else:
            runs = self._runs[self._span(net)]
        known = self._nets.get(net)
        if known is None:
            return _NetRuns(runs, agrees=not self._nets)
        agrees = known.prof_layer_count in (None, len(runs))
        agrees = agrees and known.batch_layer_count in (None, sum(run.is_batch for run in runs))
        return _NetRuns(runs, agrees, known.max_loop or 1)

    def _span(self, net: int) -> slice:
        """Return a net's place in a table without segment ids, from the nets' counts; empty if one is missing."""
        if not self._nets:
            return slice(None) if net == 0 else slice(0)
        counts = [known.prof_layer_count for net_id, known in self._nets.items() if net_id < net]
        base = sum(count for count in counts if count is not None)
        if None in counts or net not in self._nets:
            return slice(0)
        if net == max(self._nets):
            # Counts need not agree: the remaining runs are taken for those of the last net.
            return slice(base, None)
        return slice(base, base + (self._nets[net].prof_layer_count or 0))


def _differs(where: str, what: str, found: int, announced: int | None) -> list[str]:
    return [] if announced in (None, found) else [f"{where} has {found} {what}, {announced} are announced"]


def _batches(batch_num: int, input_pic_num: int, online_batch_num: Sequence[int]) -> list[tuple[int, int]]:
    if online_batch_num:
        batches = [(1, pictures) for pictures in online_batch_num]
    elif batch_num > 0:
        batches = [(input_pic_num // batch_num, batch_num), (1, input_pic_num % batch_num)]
    else:
        batches = []
    return [(count, pictures) for count, pictures in batches if count and pictures]


def _index_in_batches(
    is_batch: Sequence[bool], batches: Iterable[tuple[int, int]], at: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    # Numbers behind the last batch stay unknown: they are damage, or of a loop.
    index = np.full(at.shape, UNKNOWN_LAYER, dtype=np.int64)
    once = sum(is_batch)
    start = 0
    for count, pictures in batches:
        records = (len(is_batch) - once) * pictures + once
        end = min(start + count * records, SEQUENCE_SPAN)
        chosen = (at >= start) & (at < end)
        index[chosen] = _index_in_batch(is_batch, pictures, (at[chosen] - start) % records)
        start = end
    return index


def _index_in_batch(is_batch: Sequence[bool], pictures: int, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    firsts, widths, repeats = _groups(is_batch, pictures)
    ends = np.cumsum(widths * repeats)
    group = np.searchsorted(ends, at, side="right")
    starts = ends - widths * repeats
    found: npt.NDArray[np.int64] = firsts[group] + (at - starts[group]) % widths[group]
    return found


def _groups(is_batch: Sequence[bool], pictures: int) -> tuple[npt.NDArray[np.int64], ...]:
    groups: list[tuple[int, int, int]] = []
    for index, alone in enumerate(is_batch):
        if alone:
            groups.append((index, 1, 1))
        elif groups and index and not is_batch[index - 1]:
            first, width, repeat = groups[-1]
            groups[-1] = (first, width + 1, repeat)
        else:
            groups.append((index, 1, pictures))
    firsts, widths, repeats = np.array(groups, dtype=np.int64).T
    return firsts, widths, repeats


def _index_in_first_pass(
    is_batch: Sequence[bool], batches: Sequence[tuple[int, int]], at: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    # With one picture a batch, repeated layers come once, so the whole pass is certain; else only what is before the
    # first batch layer.
    is_one_picture = bool(batches) and batches[0][1] == 1
    certain = len(is_batch) if is_one_picture or True not in is_batch else is_batch.index(True)
    return np.where(at < certain, at, UNKNOWN_LAYER)


class Joined(NamedTuple):
    """Facts that determine the layers of a log's records, beside their nets and sequence numbers."""

    join: LayerJoin | None
    batch_num: int = 0
    input_pic_num: int = 0
    online_batch_num: tuple[int, ...] = ()


def layers_of(unit: Unit, logs: Sequence[Joined]) -> npt.NDArray[np.int32]:
    """Return the index into the layer table of each record, shape (records,); `logs` are those of the unit.

    UNKNOWN_LAYER stands where no layer is known. Segments of the same kind are looked up together, because most logs of
    a model have the same ones.
    """
    nets = unit.columns["net"][unit.seg_first].tolist()
    kinds: dict[tuple[Joined, int], int] = {}
    of_segment = [
        kinds.setdefault((logs[log], net), len(kinds)) for log, net in zip(unit.seg_log.tolist(), nets, strict=True)
    ]
    sequence = unit.columns["sequence"]
    if len(kinds) == 1:
        ((joined, net),) = kinds
        return _layers_of_net(unit.kind, joined, net, sequence)
    found = np.full(len(unit), UNKNOWN_LAYER, np.int32)
    of_record = np.array(of_segment, np.intp)[unit.segment]
    for (joined, net), number in kinds.items():
        (chosen,) = (of_record == number).nonzero()
        found[chosen] = _layers_of_net(unit.kind, joined, net, sequence[chosen])
    return found


def _layers_of_net(kind: LogKind, joined: Joined, net: int, sequence: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    if joined.join is None:
        return np.full(len(sequence), UNKNOWN_LAYER, np.int32)
    if kind is LogKind.AICPU:
        return joined.join.aicpu_layer_index(net, sequence)
    return joined.join.layer_index(net, sequence, joined.batch_num, joined.input_pic_num, joined.online_batch_num)
