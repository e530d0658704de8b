"""Rows as the store gives them, with plain defaults."""

from __future__ import annotations

from typing import Any

from profagent.export.timeline import Task
from profagent.store.selection import InferenceRow


def inference_row(**values: Any) -> InferenceRow:
    defaults = InferenceRow(0, 0, 0, 0, 1, "yolo", 0, 3, 1, 1, 0, 0, 1000, 75, 25, 0, 1)
    return defaults._replace(**values)


def task_row(ticks: int, **values: Any) -> Task:
    return Task(False, 0, 1000, 0, ticks, None)._replace(**values)
