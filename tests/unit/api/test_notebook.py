"""The notebook of the documentation: its cells run, and give the outputs that it has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.unit.api.notebook import NOTEBOOK, make_workspace, run_cells, stored_outputs

if TYPE_CHECKING:
    from pathlib import Path


def test_the_notebook_gives_the_outputs_that_it_has(tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    make_workspace(tmp_path)
    assert run_cells(notebook, tmp_path) == stored_outputs(notebook)
    plot = stored_outputs(notebook)[-1][-1]["data"]["image/svg+xml"]
    assert "".join(plot).count("<circle") > 50
