"""A format is one file and one entry of FORMATS: everything that names formats reads the table."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
import pytest

from profagent.cli.main import run
from profagent.export.blocks import Slices
from profagent.export.formats import FORMATS, Format, FormatScope
from profagent.files import written_atomically
from profagent.nightly.night import example, read_settings
from tests.unit.store.database import JOB, START_US, DatabaseBuilder
from tools.make_reference import commands_page

if TYPE_CHECKING:
    from profagent.export.blocks import Block
    from profagent.export.tracks import Tracks

NIGHT = '[[boards]]\nname = "lab1"\nrecord = { for = "10m" }\n'


class Ndjson:
    """Slices as lines of JSON: everything that somebody writes for a new format, but for the entry in FORMATS."""

    def __init__(self, file: Path, tracks: Tracks, _metadata: dict[str, Any], *, largest: int) -> None:
        self.files, self._tracks, self._largest = [file], tracks, largest

    def __enter__(self) -> Self:
        self._opened = written_atomically(self.files[0])
        self._out = self._opened.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.__exit__(*error)  # type: ignore[arg-type]

    def write(self, block: Block) -> int:
        if isinstance(block, Slices):
            for label in block.labels[: self._largest]:
                self._out.write(json.dumps({"name": label.name}).encode() + b"\n")
        return block.events

    def end(self, metadata: dict[str, Any]) -> None:
        self._out.write(json.dumps({"sessions": len(metadata["sessions"])}).encode() + b"\n")


@pytest.fixture
def _ndjson(monkeypatch: pytest.MonkeyPatch) -> None:
    option = click.Option(["--largest"], type=int, default=100)
    monkeypatch.setitem(
        FORMATS,
        "ndjson",
        Format(FormatScope.TRACE, f"{__name__}:Ndjson", "lines/trace.ndjson", "Write lines.", "jq", (option,)),
    )


@pytest.mark.usefixtures("_ndjson")
def test_a_new_format_is_a_command_by_its_entry_alone(
    builder: DatabaseBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    session = builder.session()
    model = builder.model(builder.job(session), layers=("conv", "pool"))
    inference = builder.inference(session, model, start_us=START_US, end_us=START_US + 400)
    builder.aicore(inference, builder.new_part(session, model, "aicore"), [700, 2100], start_us=START_US)
    workspace = builder.close().parent
    assert run(["export", "ndjson", "1", "--workspace", str(workspace), "--largest", "1"]) in {0, 4}
    file, closing = capsys.readouterr().out.splitlines()
    assert Path(file) == workspace / "exports" / "session-1" / "lines" / "trace.ndjson"
    assert json.loads(Path(file).read_text().splitlines()[-1]) == {"sessions": 1}
    assert closing.endswith(" events; it opens in jq")


@pytest.mark.usefixtures("_ndjson")
def test_a_new_format_is_offered_by_help_and_nightly(capsys: pytest.CaptureFixture[str]) -> None:
    run(["export", "--help"])
    assert "ndjson      Write lines." in capsys.readouterr().out
    assert read_settings('exports = ["ndjson"]\n' + NIGHT, "nightly.toml").exports == ["ndjson"]
    assert '"ndjson"' in example(None)


@pytest.mark.usefixtures("_ndjson")
def test_a_format_that_the_page_about_exports_forgets_is_named() -> None:
    with pytest.raises(SystemExit, match="has no line with `profagent export ndjson`"):
        commands_page()


@pytest.mark.parametrize("name", FORMATS)
def test_a_writer_takes_what_its_scope_and_options_give(name: str) -> None:
    form = FORMATS[name]
    given: dict[FormatScope, tuple[tuple[Any, ...], dict[str, Any]]] = {
        FormatScope.TRACE: ((Path(), None, {}), {}),
        FormatScope.TABLES: ((Path(), Path()), {"session": 1, "job": JOB, "choice": None}),
        FormatScope.SESSION: ((Path(), Path(), 1), {}),
    }
    positional, named = given[form.scope]
    more = {option.name: option.default for option in form.options}
    inspect.signature(form.load()).bind(*positional, **named, **more)
    assert form.is_folder == (not Path(form.place).suffix)
