"""What another tool told of a session: its kernels, from the database's own rows, an inference after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profagent.formats.board_files import Done
from profagent.formats.countermap import RATIOS
from profagent.formats.model_info import Layer, LayerTable, Run
from profagent.formats.names import LogKind, LogName
from profagent.ingest.live_inference import RecordColumns, ToldInference
from profagent.store.database import fetched, fetched_one, pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiosqlite
    from numpy.typing import NDArray

# CROSS JOIN keeps the order of the loops: parts first, then their records.
_KERNELS = """
SELECT g.inference, g.net, r.sequence, ifnull(r.layer_index, -1), r.ticks{ratios}
FROM part p CROSS JOIN aicore r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF
CROSS JOIN segment g ON g.segment = r.segment CROSS JOIN inference i ON i.inference = g.inference
WHERE p.session = ? ORDER BY i.end_us IS NULL, i.end_us, i.inference, r.record
"""
_INFERENCE = """
SELECT i.model, m.name, m.model_id, i.device_id, i.current_pic_count, i.start_us, i.end_us
FROM inference i JOIN model m USING (model) WHERE i.inference = ?
"""
_LAYERS = "SELECT layer_index, layer_id, name, type FROM layer WHERE model = ? ORDER BY layer_index"


class ToldKernels:
    """The inferences of a session that has results of another tool, by their end."""

    def __init__(self, connection: aiosqlite.Connection, session: int, *, has_ratios: bool) -> None:
        self._connection, self._session = connection, session
        self._ratios = RATIOS if has_ratios else ()
        # A model's table is one object: who watches knows by it that layers are the same.
        self._tables: dict[int, LayerTable] = {}

    async def inferences(self, job: str) -> AsyncIterator[ToldInference]:
        """All of them; those without a time come last."""
        sql = _KERNELS.format(ratios="".join(f", r.{name}" for name in self._ratios))
        held: list[NDArray[np.float64]] = []
        async for page in pages(self._connection, sql, (self._session,)):
            rows = np.array(page, np.float64)
            for piece in np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1):
                if held and held[0][0, 0] != piece[0, 0]:
                    yield await self._inference(job, np.concatenate(held))
                    held = []
                held.append(piece)
        if held:
            yield await self._inference(job, np.concatenate(held))

    async def _inference(self, job: str, rows: NDArray[np.float64]) -> ToldInference:
        model, name, model_id, device, step, start_us, end_us = await fetched_one(
            self._connection, _INFERENCE, (int(rows[0, 0]),)
        )
        if model not in self._tables:
            self._tables[model] = await self._table(model)
        net, sequence, layer = (rows[:, column].astype(np.int64) for column in (1, 2, 3))
        counters = {ratio: rows[:, 5 + place] for place, ratio in enumerate(self._ratios)}
        return ToldInference(
            job,
            LogName(
                LogKind.AICORE,
                device=device,
                model=name,
                model_id=model_id,
                batch_num=0,
                input_pic_num=0,
                current_pic_count=int(step),
                is_data=True,
            ),
            RecordColumns(LogKind.AICORE, net, sequence, layer.astype(np.int32), rows[:, 4], counters),
            self._tables[model],
            Done(0, start_us or 0, end_us or 0),
        )

    async def _table(self, model: int) -> LayerTable:
        layers = [
            Layer(layer_id, name, type_, index, 0, 0, is_batch=False)
            for index, layer_id, name, type_ in await fetched(self._connection, _LAYERS, (model,))
        ]
        runs = (
            Run(each.prof_layer_id, (each,), each.layer_id, each.name, each.type, each.segment, is_batch=False)
            for each in layers
        )
        return LayerTable(tuple(layers), tuple(runs))
