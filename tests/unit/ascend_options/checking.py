"""`options check` on texts, as the tests of its parts share it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent.cli.main import run

if TYPE_CHECKING:
    import pytest

OPTIONS = (
    '{"output":"/tmp/profiling","training_trace":"on","task_trace":"on","fp_point":"","bp_point":"",'
    '"aic_metrics":"PipeUtilization"}'
)


class Checking:
    """`options check` on a text, told as JSON."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capsys = folder, capsys
        self.code = 0

    def __call__(self, *texts: str, device: str = "") -> list[dict[str, Any]]:
        results = self._checked(texts, device)
        code = self.code
        # What is said to be right must be.
        for text in [each["corrected"] for each in results if each["corrected"]]:
            again = self._checked([text], device or ("atlas" if "(Atlas)" in results[0]["about"] else ""))
            # A call in a call has a correction of its own.
            again = again[:1] if again[0]["about"].endswith("(…)") else again
            assert told(again) == [], f"{text}\n{evidence(again)}"
            assert {each["corrected"] for each in again} == {None}, text
        self.code = code
        return results

    def _checked(self, texts: Sequence[str], device: str) -> list[dict[str, Any]]:
        files = []
        for number, text in enumerate(texts):
            file = self._folder / f"file{number}"
            file.write_bytes(text.encode())
            files.append(str(file))
        self.code = run(["options", "check", "--json", *(["--device", device] if device else []), *files])
        return list(json.loads(self._capsys.readouterr().out))


def told(results: list[dict[str, Any]], mark: str = "bad") -> list[str]:
    """The checks that have this verdict."""
    return [each["check"] for result in results for each in result["findings"] if each["mark"] == mark]


def evidence(results: list[dict[str, Any]]) -> str:
    return "\n".join(each["evidence"] for result in results for each in result["findings"])


def options(text: str, **more: object) -> str:
    """`profiling_options` with other values."""
    return json.dumps({**json.loads(text), **more})
