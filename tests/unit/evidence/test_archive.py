"""Archives of kits: the same bytes each time, and nothing that a stranger's archive could do."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.errors import FormatError, UsageError
from profagent.evidence import archive as module
from profagent.evidence.archive import packed, unpacked

FILES = {"manifest.json": b"{}", "job/info.json.0": b"x", "job/data/aicore.0." + "m" * 200 + ".3.0.1.1.0": b"y" * 300}


def tar(change: Callable[[tarfile.TarInfo], object], name: str = "evidence/job/data/a") -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as opened:
        member = tarfile.TarInfo(name)
        change(member)
        opened.addfile(member, io.BytesIO(b"\0" * member.size))
    return gzip.compress(written.getvalue())


def typed(type_: bytes) -> Callable[[tarfile.TarInfo], object]:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname = type_, "/etc/passwd"

    return change


def test_the_same_files_are_the_same_bytes_and_come_back() -> None:
    assert packed(FILES) == packed(dict(FILES))
    assert unpacked(packed(FILES), "kit") == FILES


def test_names_that_are_not_utf8_come_back() -> None:
    files = {"job/data/aicore.0.\udcff.3.0.1.1.0": b"x"}
    assert unpacked(packed(files), "kit") == files


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/passwd", "evidence/../x", "evidence/job/../../x", "evidence/job/..", "evidence/job/data"),
        *("job/info.json.0", "evidence/job/data/a/b", "evidence/vendor/", "evidence/job/" + "x" * 256),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="refused"):
        unpacked(tar(lambda member: None, name), "kit")


@pytest.mark.parametrize(
    "type_", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_what_is_no_regular_file_is_refused(type_: bytes) -> None:
    with pytest.raises(UsageError, match="no regular file"):
        unpacked(tar(typed(type_)), "kit")


def test_what_is_in_it_twice_is_refused() -> None:
    plain = gzip.decompress(packed({"job/info.json.0": b"x"}))
    twice = plain[:1024] + plain
    with pytest.raises(UsageError, match="twice"):
        unpacked(gzip.compress(twice), "kit")


def test_what_grows_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_ARCHIVE_BYTES", 1 << 20)
    bomb = gzip.compress(bytes(1 << 22))
    assert len(bomb) < 1 << 13
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        unpacked(bomb, "kit")


def test_a_sparse_file_is_refused() -> None:
    """A few bytes that would become 8 GiB."""
    headers = {"GNU.sparse.major": "0", "GNU.sparse.map": "0,0", "GNU.sparse.size": str(8 << 30)}
    with pytest.raises(UsageError, match="no regular file"):
        unpacked(tar(lambda member: setattr(member, "pax_headers", headers)), "kit")


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 2)
    with pytest.raises(UsageError, match="more than 2 files"):
        unpacked(packed(FILES), "kit")


def test_long_names_of_long_names_are_told() -> None:
    """Each asks for the next header before it has a name of its own."""
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    with pytest.raises(FormatError):
        unpacked(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) * 5_000), "kit")


@given(st.integers(0, 4 * 512), st.binary(min_size=1, max_size=40))
def test_whatever_a_header_says_it_is_read_or_refused(at: int, said: bytes) -> None:
    plain = bytearray(gzip.decompress(packed({"job/info.json.0": b"x", "job/data/a": b"y"})))
    plain[at : at + len(said)] = said
    with suppress(FormatError, UsageError):
        assert all(
            name.split("/")[0] in ("job", "vendor", "manifest.json") for name in unpacked(gzip.compress(plain), "")
        )


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\3\4", packed(FILES)[:-9], gzip.compress(b"\x01" * 700)],
    ids=["nothing", "another form", "cut", "no members"],
)
def test_what_is_no_whole_archive_is_told(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpacked(data, "kit")
