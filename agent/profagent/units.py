"""Units of time in which the product counts."""

from __future__ import annotations

NS_PER_US = 1_000
US_PER_MS = 1_000
US_PER_S = 1_000_000
US_BY_UNIT = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
