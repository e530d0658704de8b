"""`.done` texts: what they say, and that nothing but a whole one is taken for one."""

from __future__ import annotations

import pytest

from profagent.errors import FormatError
from profagent.formats.board_files import parse_done
from profagent.formats.names import LogKind
from tests.encoders import done_text

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
