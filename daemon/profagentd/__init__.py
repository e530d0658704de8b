"""The board side of profagent."""

__version__ = "0.1.0"
