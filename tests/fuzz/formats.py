"""Coverage-guided fuzzing of the formats: a parser gives a value, or one of its own errors. For `make fuzz`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import atheris

with atheris.instrument_imports(include=["profagent"]):
    from profagent.errors import FormatError, UnsupportedBoardError
    from profagent.formats.board_files import parse_done, parse_info_json
    from profagent.formats.countermap import parse_counter_map
    from profagent.formats.model_info import parse_layer_info, parse_net_info
    from profagent.formats.names import LogKind, parse_log_name
    from profagent.formats.records import (
        API_DTYPE,
        RECORD_BYTES,
        LogProgress,
        api_magic_faults,
        read_unit,
        view_records,
    )

FILE = "data/x"


def read(kind: LogKind, data: bytes) -> None:
    """Read records in two parts, as they may come."""
    progress, half = LogProgress.new(1), len(data) // (2 * RECORD_BYTES[kind]) * RECORD_BYTES[kind]
    for part in (data[:half], data[half:]):
        if len(part) >= RECORD_BYTES[kind]:
            progress = read_unit(kind, [part], progress).after


PARSERS = (
    lambda data: parse_done(data, LogKind.AICORE, FILE),
    lambda data: parse_done(data, LogKind.ACL_API, FILE),
    lambda data: parse_layer_info(data, FILE),
    lambda data: parse_net_info(data, FILE),
    lambda data: parse_info_json(data, FILE),
    lambda data: parse_counter_map(data.decode("utf-8", "surrogateescape"), FILE),
    lambda data: parse_log_name(os.fsdecode(data)),
    lambda data: read(LogKind.AICORE, data),
    lambda data: read(LogKind.AICPU, data),
    lambda data: api_magic_faults(view_records(data, API_DTYPE)),
)


def parse(data: bytes) -> None:
    """Give the bytes to every parser."""
    for parser in PARSERS:
        with suppress(FormatError, UnsupportedBoardError):
            parser(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, parse)
    atheris.Fuzz()
