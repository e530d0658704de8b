"""Labels that a session gets by itself: which program, models and revision of a project it is of."""

from __future__ import annotations

import asyncio
import hashlib
import re
from contextlib import suppress
from pathlib import Path

__all__ = ["project_labels"]

_DIGITS = 16
_GIT_S = 10.0
# Of a project with many models, which of them ran is not known.
_MOST_MODELS = 8
_ODD = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NAME = 50


async def project_labels(project: Path | None, main: str, digest: str = "") -> dict[str, str]:
    """`git` (with `-dirty` where files differ), `main` and `model.NAME` (of SHA-256), as far as they are found.

    `digest` is the program's, where it was read on the board.
    """
    seen = {"main": digest[:_DIGITS]} if digest else {}
    if project is None:
        return seen
    digests = await asyncio.to_thread(_digests, project, main)
    revision = await _revision(project)
    return {**({"git": revision} if revision else {}), **digests, **seen}


def _digests(project: Path, main: str) -> dict[str, str]:
    models = sorted(project.rglob("*.om"))[: _MOST_MODELS + 1]
    files = {f"model.{_ODD.sub('_', model.stem)[:_LONGEST_NAME]}": model for model in models}
    program = {} if main.startswith("/") else {"main": project / main}
    wanted = {**program, **(files if len(models) <= _MOST_MODELS else {})}
    found: dict[str, str] = {}
    for label, file in wanted.items():
        with suppress(OSError), file.open("rb") as opened:
            found[label] = hashlib.file_digest(opened, "sha256").hexdigest()[:_DIGITS]
    return found


async def _revision(project: Path) -> str:
    """Empty without git, or where the project is in no repository."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "-C", str(project), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_GIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode("ascii", "replace").strip()
