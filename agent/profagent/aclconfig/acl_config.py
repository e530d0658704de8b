"""`aclconfig`: what an acl.json tells a program to record, asked, changed and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.aclconfig.edit import edited_acl_json, profiler_of
from profagent.aclconfig.files import opened_acl_json
from profagent.doctor.acl_json import acl_json_section
from profagent.errors import FormatError, UsageError

if TYPE_CHECKING:
    from profagent.aclconfig.edit import Profiler
    from profagent.aclconfig.files import AclFile
    from profagent.doctor.finding import Section

__all__ = ["check_acl_json", "get_acl_json", "set_acl_json"]


async def get_acl_json(path: str, board: str | None) -> dict[str, object] | None:
    """The `profiler` object; None where the file has none. Raises UsageError, FormatError, UnreachableError."""
    async with opened_acl_json(path, board) as file:
        return profiler_of(await _content(file), file.shown)


async def set_acl_json(path: str, board: str | None, asked: Profiler) -> tuple[bool, Section]:
    """Write the object; a file is made where there is none. Whether it changed, and what a check says of it then.

    Raises UsageError, FormatError, ProfagentError, UnreachableError; the file stays as it was then.
    """
    async with opened_acl_json(path, board) as file:
        before = await file.read()
        data = edited_acl_json(before or b"", asked, file.shown).encode("utf-8", "surrogateescape")
        if data != before:
            await file.write(data)
        return data != before, await _checked(file, data)


async def check_acl_json(path: str, board: str | None) -> Section:
    """What the runtime would do with the file. Raises UsageError, UnreachableError."""
    async with opened_acl_json(path, board) as file:
        return await _checked(file, await _content(file))


async def _content(file: AclFile) -> bytes:
    data = await file.read()
    if data is None:
        raise UsageError(f"{file.shown} is not there", hint="`profagent aclconfig set --output DIR` makes one")
    return data


async def _checked(file: AclFile, data: bytes) -> Section:
    return acl_json_section(file.shown, data, output=await _output_state(file, data))


async def _output_state(file: AclFile, data: bytes) -> str:
    try:
        output = (profiler_of(data, file.shown) or {}).get("output")
    except FormatError:
        return ""
    return await file.output_state(output) if isinstance(output, str) and output.startswith("/") else ""
