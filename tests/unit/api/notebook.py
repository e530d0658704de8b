"""Runs the cells of the notebook of docs/notebooks; `python -m tests.unit.api.notebook` in the checkout writes it anew.

The outputs are those that Jupyter shows and stores. The workspace is of a simulated board that draws the same times
each time.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from profagent.importing.importing import import_into
from profagent.store.workspace import Workspace
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job

NOTEBOOK = Path(__file__).parents[3] / "docs" / "notebooks" / "slow-layer.ipynb"
INFERENCES = 60
_FORMS = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}


def make_workspace(folder: Path) -> None:
    """Make the workspace `demo` that the notebook opens."""
    job = write_job(folder, SimulationOptions(), INFERENCES)
    asyncio.run(import_into(job, Workspace(folder / "demo"), asyncio.Event()))


def run_cells(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """Return the outputs of each cell, as the format of notebooks has them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    with contextlib.chdir(folder):
        for number, cell in enumerate(_code_cells(notebook), 1):
            outputs.append(_outputs(ast.parse("".join(cell["source"])), names, number))
    return outputs


def stored_outputs(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [cell["outputs"] for cell in _code_cells(notebook)]


def _code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _outputs(program: ast.Module, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    printed, value = io.StringIO(), None
    last = program.body.pop() if isinstance(program.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(program, NOTEBOOK.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {form: _lines(getattr(value, name)()) for form, name in _FORMS.items() if hasattr(value, name)}
        data["text/plain"] = _lines(repr(value))
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        make_workspace(Path(folder))
        found = run_cells(notebook, Path(folder))
    for number, (cell, outputs) in enumerate(zip(_code_cells(notebook), found, strict=True), 1):
        cell.update(outputs=outputs, execution_count=number)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
