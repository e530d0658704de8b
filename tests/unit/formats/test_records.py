"""Binary records: every field at the byte that the format page says."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from profagent.formats import records
from profagent.formats.names import LogKind
from tests.encoders import aicore_record, aicpu_record, api_record

aicore = partial(records.view_records, dtype=records.AICORE_DTYPE)
aicpu = partial(records.view_records, dtype=records.AICPU_DTYPE)
calls = partial(records.view_records, dtype=records.API_DTYPE)


def test_record_sizes_are_those_of_the_format_page() -> None:
    assert records.RECORD_BYTES == {LogKind.AICORE: 256, LogKind.AICPU: 128, LogKind.ACL_API: 32}


def test_an_aicore_record_has_sequence_ticks_and_net() -> None:
    decoded = aicore(aicore_record(3, 1300, 2) + aicore_record(2**32 - 1, 2**32 - 1, 2**32 - 1))
    assert decoded["sequence"].tolist() == [3, 2**32 - 1]
    assert decoded["ticks"].tolist() == [1300, 2**32 - 1]
    assert decoded["net"].tolist() == [2, 2**32 - 1]


def test_the_raw_words_are_the_whole_record() -> None:
    words = {offset: offset * 3 for offset in range(0, 256, 4)}
    decoded = aicore(aicore_record(0, 0, 0, words))
    assert decoded["words"].tolist() == [list(words.values())]


def test_an_aicpu_record_has_its_own_times_and_its_segments() -> None:
    decoded = aicpu(aicpu_record(7, 2**40, 2**41, (2**42, 2**43), 5))
    assert decoded.tolist() == [(7, 2**40, 2**41, 2**42, 2**43, 5)]


def test_an_api_record_has_the_call() -> None:
    decoded = calls(api_record(4, 2**50, 2**51, pid=11, tid=12))
    assert decoded.tolist() == [(0x5A5A, 4, 2**50, 2**51, 11, 12)]


@pytest.mark.parametrize("extra", [0, 1, 31])
def test_bytes_of_a_partial_last_record_are_left_out(extra: int) -> None:
    assert len(aicore(aicore_record(0, 1, 0) * 3 + b"x" * extra)) == 3
    assert len(aicpu(b"\0" * 128 * 3 + b"x" * extra)) == 3
    assert len(calls(api_record(1, 2, 3) * 3 + b"x" * extra)) == 3


@pytest.mark.parametrize("data", [b"", b"x" * 31])
def test_less_than_a_record_is_no_record(data: bytes) -> None:
    assert aicore(data).shape == (0,)
    assert aicpu(data).shape == (0,)
    assert calls(data).shape == (0,)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_a_view_of_any_buffer(kind: type[bytes | bytearray | memoryview]) -> None:
    data = kind(bytearray(aicore_record(1, 2, 3)))
    decoded = aicore(data)
    assert np.shares_memory(decoded, np.frombuffer(data, dtype="u1"))


def test_a_reader_can_go_on_past_records_with_a_wrong_magic_number() -> None:
    data = api_record(0, 1, 2, magic=0) + api_record(2, 3, 4) + api_record(1, 5, 6, magic=0x5A5B)
    decoded = records.view_records(data, records.API_DTYPE)
    faults = records.api_magic_faults(decoded)
    assert faults.tolist() == [0, 2]
    assert np.delete(decoded, faults)["api"].tolist() == [2]


@pytest.mark.parametrize(
    ("api", "name"),
    [
        (0, "svp_acl_mdl_load_from_mem"),
        (1, "svp_acl_mdl_unload"),
        (2, "svp_acl_mdl_execute"),
        (3, "svp_acl_mdl_execute_async"),
        (4, "svp_acl_rt_synchronize_stream"),
        (5, "svp_acl_ext_process_aicpu_task"),
        (6, "unknown(6)"),
    ],
)
def test_calls_have_the_public_functions_names(api: int, name: str) -> None:
    assert records.api_name(api) == name
