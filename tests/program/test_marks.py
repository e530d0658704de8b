"""Marks and spans: what reaches the FIFO, from threads, asyncio tasks, forks and C."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from profagent_app import mark, marks, span
from profagent_app.marks import Kind, MarkWriter
from tests.program.reader import MarksReader

HEADER = Path(marks.__file__).parent
C_PROGRAM = r"""
#include "profagent_mark.h"
#include <stdio.h>
int main(void)
{
    uint64_t begin = profagent_now();
    int written = profagent_mark("frame", "{\"id\":7}");
    written += profagent_span("preprocess", begin);
    written += profagent_range("camera", begin, 3);
    written += profagent_frame_span("infer", begin, 7);
    printf("%d\n", written);
    return 0;
}
"""


def test_a_mark_and_a_span(fifo: MarksReader) -> None:
    before = time.time_ns()
    with span("preprocess", frame=7):
        mark("frame", id=7, name="später")
    first, second = fifo.read()
    assert (first.kind, first.text, json.loads(first.attributes)) == (Kind.MARK, "frame", {"id": 7, "name": "später"})
    assert (second.kind, second.text, second.attributes) == (Kind.SPAN, "preprocess", '{"frame":7}')
    assert before <= second.begin_ns <= first.begin_ns <= second.end_ns
    assert (first.pid, first.tid, first.lane) == (os.getpid(), threading.get_native_id(), 0)
    assert first.begin_ns == first.end_ns


def test_a_span_that_fails_is_told_and_raises(fifo: MarksReader) -> None:
    with pytest.raises(ValueError, match="no"), span("broken"):
        raise ValueError("no")
    assert [each.text for each in fifo.read()] == ["broken"]


def test_tasks_of_one_thread_are_told_apart(fifo: MarksReader) -> None:
    async def work(name: str) -> None:
        with span(name):
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))

    asyncio.run(both())
    first, second = fifo.read()
    assert first.lane != second.lane
    assert 0 not in {first.lane, second.lane}


def test_threads_write_whole_records_and_no_number_twice(fifo: MarksReader) -> None:
    fifo.limit(1 << 20)

    def work() -> None:
        for _ in range(100):
            mark("x" * 150)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each.number for each in fifo.read()) == list(range(800))


def test_long_texts_are_cut_between_characters(fifo: MarksReader) -> None:
    mark("ä" * 150, id=1)
    (only,) = fifo.read()
    assert (only.text, only.attributes) == ("ä" * 104, "")


class Odd:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(("text", "expected"), [(5, "5"), ("a\udc80", "a?"), (None, "None"), (Odd(), "?")])
def test_whatever_is_marked_nothing_is_raised(text: object, expected: str, fifo: MarksReader) -> None:
    mark(text)
    with span(text):
        pass
    assert [each.text for each in fifo.read()] == [expected, expected]


def test_attributes_may_be_anything_and_have_any_name(fifo: MarksReader) -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    mark("x", text=1, self="\udc80")
    with span("x", text=1, self=2):
        pass
    for odd in (cycle, Odd(), {(1, 2): 3}, 10**5000):
        mark("x", odd=odd)
    first, second, *others = fifo.read()
    assert json.loads(first.attributes) == {"text": 1, "self": "\udc80"}
    assert json.loads(second.attributes) == {"text": 1, "self": 2}
    assert [each.attributes for each in others] == [""] * 4


def test_a_full_fifo_drops_and_the_numbers_tell(fifo: MarksReader) -> None:
    for _ in range(1000):
        mark("x")
    held = fifo.read()
    assert 0 < len(held) < 1000
    mark("later")
    assert fifo.read()[0].number == 1000


def test_without_a_daemon_nothing_waits_and_it_is_looked_for_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_ns = 10**9
    monkeypatch.setattr(marks, "_monotonic_ns", lambda: clock_ns)
    writer = MarkWriter(str(tmp_path / "marks"))
    assert not writer.write(Kind.MARK, b"before", 9 * 10**9, 9 * 10**9)
    reader = MarksReader(tmp_path)
    clock_ns += 1
    assert not writer.write(Kind.MARK, b"too early", 9 * 10**9, 9 * 10**9)
    clock_ns += 10**9
    assert writer.write(Kind.MARK, b"the board's clock was set back", 1, 1)
    assert [each.number for each in reader.read()] == [2]
    # The daemon goes away, and comes back.
    reader.close()
    descriptors = len([*Path("/proc/self/fd").iterdir()])
    assert not writer.write(Kind.MARK, b"gone", 2, 2)
    # A thread that was about to write does so into no other file.
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors
    (tmp_path / "marks").unlink()
    reader = MarksReader(tmp_path)
    clock_ns += 10**9
    assert writer.write(Kind.MARK, b"back", 3, 3)
    assert [each.text for each in reader.read()] == ["back"]
    reader.close()
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors


def test_a_fork_counts_its_own(fifo: MarksReader) -> None:
    mark("parent")
    child = os.fork()
    if child == 0:
        mark("child")
        os._exit(0)
    os.waitpid(child, 0)
    mark("parent again")
    assert [(each.text, each.pid, each.number) for each in fifo.read()] == [
        ("parent", os.getpid(), 0),
        ("child", child, 0),
        ("parent again", os.getpid(), 1),
    ]


def test_a_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    writer = MarkWriter(str(tmp_path / "nothing"))
    with writer._opening:  # as another thread may have it
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            writer.write(0, b"child", 0, 0)
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def built(tmp_path: Path, compiler: str, *flags: str) -> Path:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(C_PROGRAM)
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [compiler, *flags, *warnings, "-pthread", f"-I{HEADER}", "-o", str(program), str(source)]
    subprocess.run(command, check=True)
    return program


def test_the_c_header_writes_the_same_and_nothing_without_a_daemon(
    fifo: MarksReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = built(tmp_path, "gcc", "-std=c99")
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "4\n"
    monkeypatch.setenv("PROFAGENT_RUN", str(tmp_path / "nothing"))
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "0\n"
    first, second, third, framed = fifo.read()
    assert (first.kind, first.text, first.attributes) == (Kind.MARK, "frame", '{"id":7}')
    assert (second.kind, second.text) == (Kind.SPAN, "preprocess")
    assert (third.kind, third.text, third.lane) == (Kind.RANGE, "camera", 3)
    assert (framed.kind, framed.text, framed.attributes) == (Kind.SPAN, "infer", '{"frame":7}')
    assert [each.number for each in (first, second, third, framed)] == [0, 1, 2, 3]
    assert first.pid == first.tid != os.getpid()


def test_each_file_with_the_header_and_each_child_counts_its_own(fifo: MarksReader, tmp_path: Path) -> None:
    (tmp_path / "one.c").write_text(
        '#include "profagent_mark.h"\n#include <sys/wait.h>\nvoid two(void);\n'
        'int main(void) { for (int at = 0; at < 3; at++) profagent_mark("one", NULL), two();\n'
        'if (fork() == 0) return profagent_mark("child", NULL), 0; return wait(NULL), 0; }\n'
    )
    (tmp_path / "two.c").write_text('#include "profagent_mark.h"\nvoid two(void) { profagent_mark("two", NULL); }\n')
    command = ["gcc", "-std=c99", "-pthread", f"-I{HEADER}", "-o", "both", "one.c", "two.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    subprocess.run([tmp_path / "both"], check=True)
    mark("python")
    found = fifo.read()
    assert [(each.text, each.number) for each in found] == [
        ("one", 0), ("two", 0), ("one", 1), ("two", 1), ("one", 2), ("two", 2), ("child", 0), ("python", 0),
    ]  # fmt: skip
    one, two, *_, python = (each.writer for each in found)
    assert len({one, two, python}) == 3
    assert (one % 2, two % 2, python % 2) == (1, 1, 0)


def test_the_c_header_says_that_it_comes_first(tmp_path: Path) -> None:
    (tmp_path / "late.c").write_text('#include <stdio.h>\n#include "profagent_mark.h"\n')
    command = ["gcc", "-std=c99", f"-I{HEADER}", "-fsyntax-only", str(tmp_path / "late.c")]
    assert "before any other header" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.long
def test_the_c_header_compiles_for_the_board(tmp_path: Path) -> None:
    built(tmp_path, "aarch64-linux-gnu-gcc", "-std=c99")
