"""`info.json`: the NPU clock, and the sibling SoC that is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from profagent.errors import FormatError, UnsupportedBoardError
from profagent.formats.board_files import looks_like_hi3519, parse_acl_json, parse_done, parse_info_json
from profagent.formats.countermap import bound_by, mean_ratios
from profagent.formats.names import LogKind
from tests.encoders import done_text


@pytest.mark.parametrize(
    ("profiler", "interval"),
    [
        ('{"switch":"on"}', 0),
        ('{"interval":"7"}', 7),
        ('{"interval":" 9999",}', 9999),
        ('{\r\n\t"interval" : "0"\r\n}', 0),
        ('{"a":",}","interval":"1"}', 1),
    ],
)
def test_an_interval_is_read_as_the_runtime_does(profiler: str, interval: int) -> None:
    assert parse_acl_json(b'{"profiler":%s}' % profiler.encode(), "acl.json") == interval


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"profiler":"on"}',
        b'{"profiler":{"interval":5}}',
        b'{"profiler":{"interval":"10000"}}',
        b'{"profiler":{"interval":"5x"}}',
    ],
)
def test_a_file_that_tells_none_is_named(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^acl\.json: "):
        parse_acl_json(data, "acl.json")


FILE = "info.json.0"


def test_the_runtimes_own_text_is_read() -> None:
    assert parse_info_json(b'{"DeviceInfo": [{"aic_frequency": "700"}]}', FILE) == 700


@pytest.mark.parametrize(
    "text",
    [
        '{"DeviceInfo": [{"aic_frequency": 700}]}',
        '{"DeviceInfo": [{"aic_frequency": "700", "cores": 2}], "version": {"sdk": [1, "二"]}}',
        '{"Other": [], "DeviceInfo": [{"id": 0}, {"aic_frequency": "700"}]}\n',
        '{"magic_num": "5A5A", "DeviceInfo": [{"aic_frequency": "700"}]}',
    ],
)
def test_objects_beside_the_frequency_are_accepted(text: str) -> None:
    assert parse_info_json(text.encode(), FILE) == 700


@pytest.mark.parametrize(
    "value",
    [
        {"magic_num": "6A6A", "DeviceInfo": [{"aic_frequency": "594"}]},
        {"DeviceInfo": [{"aic_frequency": "594", "magic_num": "6A6A"}]},
        {"DeviceInfo": [{"aic_frequency": "500"}, {"magic_num": "6a6a"}]},
    ],
)
def test_a_hi3519_is_refused_by_name(value: dict[str, object]) -> None:
    with pytest.raises(UnsupportedBoardError, match="Hi3519DV500") as caught:
        parse_info_json(json.dumps(value).encode(), FILE)
    assert caught.value.exit_code == 2
    assert "SS928" in caught.value.hint


@pytest.mark.parametrize(
    "frequency", ['""', '"0"', "0", '"-700"', "-700", '"7e2"', "700.0", "true", "null", '"９"', '"99999999999"']
)
def test_a_frequency_that_is_no_number_of_mhz_is_told(frequency: str) -> None:
    text = f'{{"DeviceInfo": [{{"aic_frequency": {frequency}}}]}}'.encode()
    with pytest.raises(FormatError, match="whole MHz") as caught:
        parse_info_json(text, FILE)
    assert caught.value.offset == text.index(b"aic_frequency")


@pytest.mark.parametrize("text", [b"{}", b"[]", b"700", b'"aic_frequency"', b'{"DeviceInfo": []}'])
def test_an_absent_frequency_is_told(text: bytes) -> None:
    with pytest.raises(FormatError, match="aic_frequency"):
        parse_info_json(text, FILE)


@pytest.mark.parametrize(
    "text", [b"", b'{"DeviceInfo": [{"aic_freq', b'{"a": "\xff"}', b"[" * 100_000, b"1" * 100_000], ids=range(5)
)
def test_what_is_no_json_is_told(text: bytes) -> None:
    with pytest.raises(FormatError):
        parse_info_json(text, FILE)


@pytest.mark.parametrize(
    ("names", "is_hi3519"),
    [
        (["info.json.0", "data/aicore.0.1.1", "data/aicore.0.1.1.done"], True),
        (["data/aicpu.0.4.6"], True),
        (["info.json.0"], False),
        ([], False),
        (["data/aicore.0.m.3.1.4.6.0"], False),
        (["data/aicore.0.1.1", "data/aicore.0.m.3.1.4.6.0"], False),
        (["aicore.0.1.1"], False),
        (["data/acl_api.0.1"], False),
    ],
)
def test_a_hi3519_job_is_recognised_by_data_files_without_a_model(names: list[str], is_hi3519: bool) -> None:
    assert looks_like_hi3519(names) == is_hi3519


# `.done` texts: what they say, and that nothing but a whole one is taken for one

AICORE = done_text(file_len=2816, start_time=111, end_time=222, cache_hit=2222, cache_mis=1111)
AICPU = done_text(file_len=384, start_time=111, end_time=222)
API = done_text(file_len=224, start_time=111, end_time=222, pid=13058, tid=13059)


@pytest.mark.parametrize("text", [AICORE, AICPU, API])
@pytest.mark.parametrize("kind", [LogKind.AICORE, LogKind.AICPU, LogKind.ACL_API])
def test_each_kind_takes_its_own_text_only(text: bytes, kind: LogKind) -> None:
    if text == {LogKind.AICORE: AICORE, LogKind.AICPU: AICPU, LogKind.ACL_API: API}[kind]:
        assert parse_done(text, kind, "x.done").start_us == 111
    else:
        with pytest.raises(FormatError):
            parse_done(text, kind, "x.done")


@pytest.mark.parametrize(("text", "kind"), [(AICORE, LogKind.AICORE), (AICPU, LogKind.AICPU), (API, LogKind.ACL_API)])
def test_a_text_torn_anywhere_is_told_with_the_place(text: bytes, kind: LogKind) -> None:
    for length in range(len(text)):
        with pytest.raises(FormatError) as caught:
            parse_done(text[:length], kind, "data/x.done")
        assert caught.value.file == "data/x.done"
        assert caught.value.offset <= length


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        (b"", 0, "file_len:"),
        (b"start_time:1\nfile_len:1\nend_time:2\n", 0, "file_len:"),
        (b"file_len:x\nstart_time:1\nend_time:2\n", 0, "file_len:"),
        (b"file_len:1\r\nstart_time:1\nend_time:2\n", 0, "file_len:"),
        (b"file_len:1\nend_time:2\n", 11, "start_time:"),
        (b"file_len:1\nstart_time:1\nend_time:2\nmore:1\n", 35, "end of the text"),
        (b"file_len:1\nstart_time:1\nend_time:2\n\0\0", 35, "end of the text"),
        ("file_len:١\nstart_time:1\nend_time:2\n".encode(), 0, "file_len:"),
        (b"file_len:4294967296\nstart_time:1\nend_time:2\n", 0, "from -2147483648 to 4294967295"),
        (b"file_len:-2147483649\nstart_time:1\nend_time:2\n", 0, "from -2147483648 to 4294967295"),
        (b"file_len:1\nstart_time:-1\nend_time:2\n", 11, "'start_time:' with a number from 0"),
        (b"file_len:1\nstart_time:1\nend_time:" + b"9" * 5000 + b"\n", 24, "'end_time:'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: bytes, offset: int, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_done(text, LogKind.AICPU, "x.done")
    assert caught.value.offset == offset
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    "batches", [b"", b"1,", b",1", b"1,,2", b"1 2", b"9,8,7,6,5,4,3,2,1", b"-1", b"4294967296", b"1\n\n"]
)
def test_wrong_batches_are_told(batches: bytes) -> None:
    with pytest.raises(FormatError):
        parse_done(AICORE + b"online_batch_num:" + batches, LogKind.AICORE, "x.done")


# What bounds a layer: mac_busy, mac_ppen, vec_busy, vec_ppen, dstr, dtrans, dld, wld


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ((0.9, 0.71, 0, 0, 0.1, 0, 0.9, 0.9), "cube"),
        ((0.9, 0.69, 0, 0, 0.1, 0, 0.71, 0.1), "DLD"),
        ((0.9, 0.5, 0, 0, 0.71, 0, 0.1, 0.8), "Dstr"),
        ((0.9, 0.5, 0, 0, 0.72, 0, 0.1, 0.9), "WLD"),
        ((0, 0, 0.8, 0.6, 0.7, 0, 0.7, 0), "vector"),
        ((0.1, 0, 0.8, 0.6, 0.69, 0, 0.7, 0), "DLD"),
        ((0.8, 0.6, 0, 0, 0.7, 0, 0.7, 0), "mac"),
        ((0.5, 0.4, 0.6, 0.3, 0.2, 0.65, 0.2, 0.2), "Dtrans"),
        ((0.5, 0.4, 0.7, 0.3, 0.2, 0.65, 0.2, 0.2), "vec"),
        ((0.5, 0.4, 0.6, 0.3, 0.6, 0.65, 0.2, 0.2), "Dstr"),
        ((0.5, 0.4, 0.6, 0.3, 0.6, 0.65, 0.2, 0.7), "WLD"),
        ((0.4, 0.4, 0.49, 0.4, 0.4, 0.4, 0.4, 0.4), "unexplained"),
        ((0.9, 0.5, 0, 0, 0.1, 0, 1.5, 0.1), None),
        ((0.9, 0.5, 0, 0, -0.1, 0, 0.1, 0.1), None),
        ((0.9, float("nan"), 0, 0, 0.1, 0, 0.1, 0.1), None),
    ],
)
def test_a_word_for_ratios(ratios: tuple[float, ...], word: str | None) -> None:
    assert bound_by(np.array(ratios)) == word


def test_means_are_weighted_by_time() -> None:
    means = mean_ratios(np.array([[0.2, 1.0], [0.6, 0.0]]), np.array([10.0, 30.0]))
    assert means.tolist() == pytest.approx([0.5, 0.25])


def test_what_one_record_does_not_know_is_not_known() -> None:
    assert np.isnan(mean_ratios(np.array([[0.2], [np.nan]]), np.array([1.0, 1.0]))).all()
    assert np.isnan(mean_ratios(np.array([[0.2]]), np.array([0.0]))).all()
