"""The examples of the docs, C ones compiled within a program, run beside the daemon's own end of the FIFO."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isfunction
from operator import attrgetter
from pathlib import Path

import pytest

import profagent_app
from profagent_app import acl, marks
from profagent_app.acl import binding
from profagentd.spools.intake import RECORD_BYTES, Intake
from profagentd.spools.spool import Spool
from tests.program.conftest import MODEL

PAGE = Path(__file__).parents[2] / "docs/howto/mark-and-subscribe.md"
HEADERS = Path(__file__).with_name("include")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{HEADERS}", f"-I{Path(marks.__file__).parent}")
MARKS, SUBSCRIPTION = re.findall(r"```c\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
# A program around the page's lines, which is called with a model and a FIFO.
PROGRAM = """
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "svp_acl.h"
#include "svp_acl_mdl.h"
#include "svp_acl_prof.h"

static char model[1 << 26];

static int run(uint32_t model_id, const char *path)
{
%s
    return 0;
}

int main(int count, char **words)
{
    FILE *file = count == 3 ? fopen(words[1], "rb") : NULL;
    uint32_t model_id;
    if (file == NULL) return 2;
    size_t size = fread(model, 1, sizeof model, file);
    fclose(file);
    if (svp_acl_init(NULL) || svp_acl_rt_set_device(0) || svp_acl_mdl_load_from_mem(model, size, &model_id)) return 1;
    int code = run(model_id, words[2]);
    svp_acl_mdl_unload(model_id);
    return svp_acl_finalize() || code;
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "subscribe.c"
    path.write_text(PROGRAM % SUBSCRIPTION)
    return path


@contextmanager
def spooling(folder: Path) -> Iterator[Callable[[], int]]:
    """The daemon's end of the FIFOs in `folder`/run; what it gives tells, after the end, how many descriptors came."""
    spools = folder / "spools"
    spools.mkdir()
    intake = Intake(str(folder / "run"), ["program"], lambda kind, name: Spool(str(spools), kind, name))
    intake.start()
    try:
        yield lambda: sum(each.stat().st_size for each in spools.glob("OPS-program-*/00000001")) // RECORD_BYTES
    finally:
        intake.stop()


def test_the_subscription_s_descriptors_reach_the_spool(
    source: Path, tmp_path: Path, new_library: Callable[[], str]
) -> None:
    library, program, model = Path(new_library()), tmp_path / "subscribe", tmp_path / "model"
    model.write_bytes(MODEL)
    linked = (f"-L{library.parent}", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}")
    subprocess.run(["gcc", *FLAGS, "-o", program, source, *linked], check=True)
    with spooling(tmp_path) as spooled:
        subprocess.run([program, model, tmp_path / "run/ops.program"], check=True, timeout=60)
    # Without a FIFO it says why.
    ended = subprocess.run([program, model, tmp_path / "none"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, f"{tmp_path}/none: {os.strerror(2)}\n")
    assert spooled() == 10 * MODEL.count(b"layer ")


def test_so_do_those_of_the_subscription_in_python(tmp_path: Path, library: str) -> None:
    (code,) = re.findall(r"```python\n(import os.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert acl.init() == 0
    model_id, _ = acl.mdl.load_from_mem(acl.util.bytes_to_ptr(MODEL), len(MODEL))
    names = {"model_id": model_id, "inputs": 0, "outputs": 0}
    with spooling(tmp_path) as spooled:
        exec(code.replace("/run/profagent", str(tmp_path / "run")), names)
    assert names["ret"] == 0
    assert spooled() == MODEL.count(b"layer ")


def test_the_reference_names_every_function_that_there_is_and_no_other() -> None:
    text = (PAGE.parents[1] / "reference/program.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(acl[.\w]*)` \| (.*) \|$", text, re.MULTILINE))
    assert list(rows) == ["acl", "acl.rt", "acl.mdl", "acl.prof", "acl.util"]
    for module, row in rows.items():
        found = attrgetter(module)(profagent_app)
        named = set(re.findall(r"`(\w+)`", row))
        named |= {name.replace("input", "output") for name in named}
        assert [name for name in named if not hasattr(found, name)] == []
        functions = {name for name, it in vars(found).items() if isfunction(it) and it not in vars(binding).values()}
        assert "…" in row or {name for name in functions if name[0] != "_"} <= named


def test_the_marks_compile(tmp_path: Path) -> None:
    body = "static void preprocess(void) {}\nint main(void)\n{\n" + MARKS + "return 0;\n}\n"
    (tmp_path / "marks.c").write_text('#include "profagent_mark.h"\n' + body)
    subprocess.run(["gcc", *FLAGS, "-pthread", "-o", tmp_path / "marks", tmp_path / "marks.c"], check=True)


@pytest.mark.long
def test_it_compiles_for_the_board(source: Path, tmp_path: Path) -> None:
    subprocess.run(["aarch64-linux-gnu-gcc", *FLAGS, "-c", "-o", tmp_path / "subscribe.o", source], check=True)
