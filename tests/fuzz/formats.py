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
        AICORE_DTYPE,
        AICPU_DTYPE,
        API_DTYPE,
        Records,
        Splitter,
        api_magic_faults,
        view_records,
    )

FILE = "data/x"


def split(records: Records) -> None:
    """Find segments and loads, in two parts as they may come."""
    splitter, half = Splitter(), len(records) // 2
    for part in (records[:half], records[half:]):
        splitter.feed(part["sequence"], part["net"])


PARSERS = (
    lambda data: parse_done(data, LogKind.AICORE, FILE),
    lambda data: parse_done(data, LogKind.ACL_API, FILE),
    lambda data: parse_layer_info(data, FILE),
    lambda data: parse_net_info(data, FILE),
    lambda data: parse_info_json(data, FILE),
    lambda data: parse_counter_map(data.decode("utf-8", "surrogateescape"), FILE),
    lambda data: parse_log_name(os.fsdecode(data)),
    lambda data: split(view_records(data, AICORE_DTYPE)),
    lambda data: split(view_records(data, AICPU_DTYPE)),
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
