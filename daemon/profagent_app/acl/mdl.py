"""`acl.mdl`: loading and executing a model."""

from __future__ import annotations

import ctypes
from pathlib import Path

from profagent_app.acl.binding import code_of, runtime, value_of


def load_from_file(path: str) -> tuple[int, int]:
    """Load a model file: its id, and a code."""
    return value_of(0, lambda: runtime().load_model(Path(path).read_bytes()))


def load_from_mem(model: int, size: int) -> tuple[int, int]:
    """Load a model from an address: its id, and a code."""
    return value_of(0, lambda: runtime().load_model(ctypes.string_at(model, size) if model else b""))


def execute(model_id: int, inputs: int, outputs: int) -> int:
    """Run a model with two datasets."""
    return code_of(runtime().execute, model_id, inputs, outputs)


def unload(model_id: int) -> int:
    """Unload a model."""
    return code_of(runtime().unload_model, model_id)
