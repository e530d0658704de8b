"""Which inference a vendor's table is of, by the name that the vendor's tool gave it."""

from __future__ import annotations

import re

__all__ = ["inference_text", "said_inference"]

# The manual's name of an op_summary ends in model id, batch, pictures, pictures before, miss rate and frequency.
_PICTURES = re.compile(
    r"\.(\d+)\.(\d+)\.(\d+)\.(\d+)(?:\.(?:[01]\.\d+|NA)\.(?:\d+|NA))?(?:\.\d+)?\.(?:csv|txt|xls|tsv)$"
)


def said_inference(file: str) -> tuple[int, ...] | None:
    """Give model id, batch, pictures, and pictures before; None where the name tells no inference."""
    said = _PICTURES.search(file)
    return tuple(map(int, said.groups())) if said else None


def inference_text(file: str) -> str:
    """Give the end of the name that tells the inference; empty where none does."""
    said = _PICTURES.search(file)
    return said[0] if said else ""
