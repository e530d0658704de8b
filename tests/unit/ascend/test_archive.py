"""Archives of results, and those that are made to do harm."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from profagent.ascend import archive
from profagent.ascend.archive import Limits, unpack
from profagent.cli.main import run
from profagent.errors import ResultError
from tests.unit.ascend.files import OP_SUMMARY, SUMMARIES, kernel, rows, summary, taken

NAME = "PROF_1/mindstudio_profiler_output/op_summary_1.csv"


def _tar(
    file: Path, names: dict[str, bytes], how: Literal["w:gz", "w:xz", "w:bz2", "w"] = "w:gz", **headers: str
) -> Path:
    with tarfile.open(file, how) as tape:
        for name, data in names.items():
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(data), headers
            tape.addfile(member, io.BytesIO(data))
    return file


def _zip(file: Path, names: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in names.items():
            packed.writestr(name, data)
    return file


@pytest.mark.parametrize("make", [_tar, _zip])
def test_results_in_an_archive_are_a_session(make: object, tmp_path: Path) -> None:
    assert callable(make)
    packed = make(tmp_path / "runs.archive", {NAME: f"{OP_SUMMARY}\n{kernel()}\n".encode(), "notes.txt": b"x"})
    workspace = tmp_path / "workspace"
    assert taken(workspace, packed)[0].kernels == 1
    assert rows(workspace, "SELECT address FROM session") == [(f"{packed}/PROF_1",)]
    assert taken(workspace, packed)[0].is_known
    assert not [*workspace.glob(".import-*")]


def test_files_of_one_run_in_an_archive_are_called_as_it(tmp_path: Path) -> None:
    content = {"op_summary_1.csv": f"{OP_SUMMARY}\n{kernel()}\n".encode()}
    content["op_statistic_1.csv"] = "\n".join(SUMMARIES["op_statistic"]).encode()
    packed = _tar(tmp_path / "monday.tar.gz", content)
    workspace = tmp_path / "workspace"
    assert [each.rows for each in taken(workspace, packed)] == [2]
    assert rows(workspace, "SELECT name, directory FROM job") == [("monday.tar.gz", str(packed))]


@pytest.mark.parametrize("make", [_tar, _zip])
@pytest.mark.parametrize("name", ["../out.csv", "/out.csv", "a/../../out.csv", "a\\..\\..\\out.csv"])
def test_a_name_that_leads_out_is_refused(make: object, name: str, tmp_path: Path) -> None:
    assert callable(make)
    packed = make(tmp_path / "x", {name: b"x"})
    with pytest.raises(ResultError, match="leads to a place outside"):
        unpack(packed, tmp_path / "in" / "side", Limits(packed, tmp_path))
    assert not [*tmp_path.rglob("out.csv")]


def test_links_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tape:
        link = tarfile.TarInfo("link.csv")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tape.addfile(link)
    packed = tmp_path / "x.tar.gz"
    assert unpack(packed, tmp_path / "inside", Limits(packed, tmp_path)) == (["link.csv"], [])
    assert not [*tmp_path.rglob("link.csv")]


def _nested(data: bytes, name: str, deep: int) -> bytes:
    """An archive in so many others."""
    for number in range(deep):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as outer:
            outer.writestr(name, data)
        data, name = packed.getvalue(), f"in/{number}.zip"
    return data


LIMITS = {
    "bytes by its size": ({"a.csv": bytes(20 << 20)}, "a.csv: it unpacks to more than 100 times its size"),
    "bytes with those of archives in it": (
        {"b.zip": _nested(bytes(20 << 20), "a.csv", 2)},
        "a.csv: it unpacks to more than 100 times its size",
    ),
    "bytes by the disk": ({"a.csv": bytes(99), "b.csv": bytes(2000)}, "b.csv: it unpacks to more than half of what"),
    "entries": ({f"{number}/": b"" for number in range(41)}, "it has more than 40 entries"),
    "folders": ({"d/" * 65 + "a.csv": b"x"}, "its folders are nested more than 64 deep"),
    "archives": ({"c.zip": _nested(b"x", "a.csv", 3)}, "it is an archive in 3 others"),
}


@pytest.mark.parametrize("make", [_tar, _zip])
@pytest.mark.parametrize("what", LIMITS)
def test_an_archive_beyond_a_limit_is_an_error_of_one_line_and_leaves_nothing(
    what: str, make: Callable[[Path, dict[str, bytes]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, said = LIMITS[what]
    monkeypatch.setattr(archive, "ALWAYS_UNPACKED_BYTES", 3000)
    monkeypatch.setattr(archive, "MOST_ENTRIES", 40)
    if what == "bytes by the disk":
        monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9000, 5000, 4000))
    other = summary(tmp_path / "a.csv", OP_SUMMARY, kernel())
    bad, good = taken(tmp_path / "workspace", make(tmp_path / "x.archive", content), other)
    assert (bad.session, good.session) == (None, 1)
    assert bad.error is not None
    assert said in str(bad.error)
    assert "\n" not in str(bad.error)
    assert str(bad.error).startswith(f"{tmp_path}/x.archive")
    assert "by hand" in bad.error.hint or "another disk" in bad.error.hint
    assert not [*(tmp_path / "workspace").glob(".import-*")]


def test_a_header_longer_than_any_real_one_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LONGEST_HEADER_BYTES", 200)
    (one,) = taken(tmp_path / "workspace", _tar(tmp_path / "x.tar", {"a.csv": b"x"}, "w", comment="c" * 300))
    assert "cannot read the archive: a header of" in str(one.error)


def test_an_archive_that_is_cut_off_is_an_error_and_stops_no_other(tmp_path: Path) -> None:
    whole = _tar(tmp_path / "whole.tar.gz", {NAME: f"{OP_SUMMARY}\n{kernel()}\n".encode() * 50})
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[:-40])
    found = taken(tmp_path / "workspace", cut, summary(tmp_path / "a.csv", OP_SUMMARY, kernel()))
    assert [each.session for each in found] == [None, 1]
    assert "cannot read" in str(found[0].error)


def _damaged(folder: Path, what: str) -> Path:
    """An archive of two files, each damaged in its own way."""
    file = folder / what
    names = {name: f"{OP_SUMMARY}\n{kernel(name)}\n".encode() * 20 for name in ("a.csv", "b.csv")}
    if what.startswith("tar"):
        headers = {"GNU.sparse.map": "x"} if what == "tar, odd sparse header" else {}
        data = _tar(file, names, "w", **headers).read_bytes()
        second = data.index(b"b.csv")
        cuts = {"tar, cut before a header": data[:second], "tar, cut within a header": data[: second + 100]}
        cuts["tar, a header is altered"] = data[:second] + b"x" + data[second + 1 :]
        file.write_bytes(cuts.get(what, data))
    elif what == "gzip, wrong sum":
        data = gzip.compress(names["a.csv"])
        file.write_bytes(data[:-8] + bytes(4) + data[-4:])
    else:
        how = {"zip, lzma": zipfile.ZIP_LZMA, "zip, bz2": zipfile.ZIP_BZIP2}.get(what, zipfile.ZIP_STORED)
        with zipfile.ZipFile(file, "w", how) as packed:
            for name, data in names.items():
                packed.writestr(f"\u00e9{name}", data)
        data = file.read_bytes().replace("\u00e9".encode(), b"\xff\xff")
        file.write_bytes(data if how == zipfile.ZIP_STORED else data[:60] + b"\xff" * 40 + data[100:])
    return file


@pytest.mark.parametrize(
    "what",
    [
        "tar, cut before a header",
        "tar, cut within a header",
        "tar, a header is altered",
        "tar, odd sparse header",
        "gzip, wrong sum",
        "zip, lzma",
        "zip, bz2",
        "zip, a name is no UTF-8",
    ],
)
def test_what_is_damaged_is_told_and_nothing_of_it_is_imported(what: str, tmp_path: Path) -> None:
    (one,) = taken(tmp_path / "workspace", _damaged(tmp_path, what))
    assert "cannot read the archive" in str(one.error)
    assert one.error is not None
    assert one.error.hint == "pack or copy it again"


def test_a_tar_that_ends_with_a_zip_is_read_as_a_tar(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as packed:
        packed.writestr("other.csv", "x")
    tape = _tar(tmp_path / "x.tar", {"a.csv": b"x", "b.zip": inner.getvalue()}, "w")
    unpack(tape, tmp_path / "inside", Limits(tape, tmp_path))
    assert sorted(each.name for each in (tmp_path / "inside").iterdir()) == ["a.csv", "b.zip"]


@pytest.mark.parametrize("name", ["x.tar.xz", "x.txz", "x.tar.bz2", "x.tbz"])
def test_tars_that_are_packed_in_another_way_are_taken(name: str, tmp_path: Path) -> None:
    how: Literal["w:xz", "w:bz2"] = "w:xz" if name.endswith("xz") else "w:bz2"
    (tmp_path / "in").mkdir()
    _tar(tmp_path / "in" / name, {NAME: f"{OP_SUMMARY}\n{kernel()}\n".encode()}, how)
    assert [each.kernels for each in taken(tmp_path / "workspace", tmp_path / "in")] == [1]


def test_what_is_encrypted_is_told_in_plain_words(tmp_path: Path) -> None:
    packed = _zip(tmp_path / "x.zip", {"a.csv": b"x"})
    data = bytearray(packed.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    packed.write_bytes(data)
    (one,) = taken(tmp_path / "workspace", packed)
    assert one.error is not None
    assert str(one.error) == f"{packed}: a.csv in it is encrypted: it cannot be read without its password"
    assert "by hand" in one.error.hint


def test_of_two_members_of_one_name_the_later_is_taken_and_the_other_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, workspace = tmp_path / "x.zip", tmp_path / "workspace"
    first, second = ("\n".join([OP_SUMMARY, *[kernel()] * count, ""]) for count in (1, 2))
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("a/kernel_details.csv", first)
        with pytest.warns(UserWarning, match="Duplicate"):
            out.writestr("a/kernel_details.csv", second)
    assert run(["import", str(packed), "--workspace", str(workspace)]) == 0
    why = "replaced by a later one of its name in the archive"
    assert f"not imported: 1 file {why}" in capsys.readouterr().out
    notes = rows(workspace, "SELECT reason, detail FROM ledger")
    assert notes == [("not-taken", f"1 file {why}: kernel_details.csv")]
    assert rows(workspace, "SELECT rows FROM ascend_files") == [(2,)]


@pytest.mark.parametrize(("end", "pack"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_a_file_that_is_packed_alone_is_a_session(end: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    packed = tmp_path / f"op_summary_1.csv.{end}"
    packed.write_bytes(pack(f"{OP_SUMMARY}\n{kernel()}\n".encode()))
    assert taken(tmp_path / "workspace", packed)[0].kernels == 1
    assert rows(tmp_path / "workspace", "SELECT name FROM job") == [("op_summary_1.csv",)]


def test_archives_in_an_archive_and_among_results_are_looked_through(tmp_path: Path) -> None:
    inner = _tar(tmp_path / "inner.tar.gz", {NAME: f"{OP_SUMMARY}\n{kernel()}\n".encode()}).read_bytes()
    outer = _zip(tmp_path / "outer.zip", {"in/inner.tar.gz": inner, NAME: f"{OP_SUMMARY}\n{kernel()[:9]}".encode()})
    run = tmp_path / "run" / "ASCEND_PROFILER_OUTPUT"
    summary(run / "op_statistic.csv", *SUMMARIES["op_statistic"])
    (run / "inner.tar.gz").write_bytes(inner)
    found = taken(tmp_path / "workspace", outer, run)
    assert [(str(each.path.relative_to(tmp_path)), each.rows, each.losses) for each in found] == [
        ("outer.zip/PROF_1", 1, 1),
        ("outer.zip/in/inner.tar.gz/PROF_1", 1, 0),
        ("run/ASCEND_PROFILER_OUTPUT", 1, 0),
        ("run/ASCEND_PROFILER_OUTPUT/inner.tar.gz/PROF_1", 1, 0),
    ]
    # Where it was unpacked is there no more.
    ((reason, detail),) = rows(tmp_path / "workspace", "SELECT reason, detail FROM ledger")
    assert (reason, detail.startswith(f"{outer}/{NAME}: line 2")) == ("damaged-result", True)
    assert [each.is_known for each in taken(tmp_path / "workspace", run, outer)] == [True] * 4
