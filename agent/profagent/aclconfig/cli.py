"""`profagent aclconfig get`, `set` and `check`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from profagent.aclconfig.edit import ProfilerSettings, edited_acl_json, opened_acl_json, profiler_of, profiler_options
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.running import run_to_the_end, tell
from profagent.doctor.acl_json import acl_json_section
from profagent.doctor.finding import FindingMark, finding_lines, section_fields, section_lines
from profagent.errors import FormatError, UsageError
from profagent.formats.names import display_text
from profagent.tables.table import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.aclconfig.edit import AclJsonFile
    from profagent.doctor.finding import Section


async def _get(path: str, board: str | None) -> dict[str, object] | None:
    async with opened_acl_json(path, board) as file:
        return profiler_of(await _content(file), file.shown)


async def _set(path: str, board: str | None, asked: ProfilerSettings) -> tuple[bool, Section]:
    async with opened_acl_json(path, board) as file:
        before = await file.read()
        data = edited_acl_json(before or b"", asked, file.shown).encode("utf-8", "surrogateescape")
        if data != before:
            await file.write(data)
        return data != before, await _checked(file, data)


async def _check(path: str, board: str | None) -> Section:
    async with opened_acl_json(path, board) as file:
        return await _checked(file, await _content(file))


async def _content(file: AclJsonFile) -> bytes:
    data = await file.read()
    if data is None:
        raise UsageError(f"{file.shown} does not exist", hint="`profagent aclconfig set --output DIR` makes one")
    return data


async def _checked(file: AclJsonFile, data: bytes) -> Section:
    state = ""
    with suppress(FormatError):
        output = (profiler_of(data, file.shown) or {}).get("output")
        if isinstance(output, str) and output.startswith("/"):
            state = await file.output_state(output)
    return acl_json_section(file.shown, data, output=state)


F = TypeVar("F", bound="Callable[..., Any]")


def _file(function: F) -> F:
    for add in (
        click.argument("path", metavar="PATH"),
        options.ssh_board,
        options.as_json,
    ):
        function = add(function)
    return function


@click.group("aclconfig")
def command() -> None:
    """Read, change or check the acl.json that tells a program what to record, here or on a board.

    A program reads the file when it starts (svp_acl_init), so a change takes effect at its next start.

    Example: profagent aclconfig set --board root@192.168.1.20 --output /opt/app/profiling /opt/app/acl.json
    Example: profagent aclconfig check --board euler /opt/app/acl.json
    """


@command.command("get")
@_file
def get(*, path: str, board: str | None, as_json: bool) -> int:
    """Print the `profiler` object. Exit code 1: the file has none.

    Example: profagent aclconfig get --board euler /opt/app/acl.json
    Example: profagent aclconfig get --json acl.json
    """
    profiler = run_to_the_end(lambda: _get(path, board))
    if as_json:
        print_document("aclconfig-get", {"path": path, "board": board, "profiler": _plain(profiler)})
    elif profiler is None:
        click.echo("no object 'profiler'")
    else:
        for key, value in profiler.items():
            text = value if isinstance(value, str) else msgspec.json.encode(_plain(value)).decode()
            click.echo(printable(f"{key:12} {text}"))
    return 0 if profiler is not None else 1


@command.command("set")
@_file
@click.option("--output", metavar="DIR", help="The directory on the board where JOBs are made; it must exist.")
@profiler_options(ProfilerSettings())
def set_(*, path: str, board: str | None, output: str | None, profiler: ProfilerSettings, as_json: bool) -> int:
    """Write the `profiler` object. Options that are not named keep their value.

    Keys are written in both spellings, and all values as strings. A missing file or value gets the default: switch on,
    interval 0, acl_api on, aacpu on, aac_metrics ArithmeticUtilization.
    Exit code 1: the runtime would not record with this file, and --switch off was not given.

    Example: profagent aclconfig set --interval 1 --output /opt/app/profiling acl.json
    Example: profagent aclconfig set --board euler --acl_api on /opt/app/acl.json
    """
    has_changed, section = run_to_the_end(lambda: _set(path, board, replace(profiler, output=output)))
    if as_json:
        print_document("aclconfig-set", {"changed": has_changed, **section_fields(section)})
    else:
        click.echo(printable(f"{section.about}: {'written' if has_changed else 'nothing to do'}"))
        for finding in section.findings:
            if finding.mark is not FindingMark.GOOD:
                tell(next(finding_lines(finding)))
        if not section.is_good:
            tell(f"`profagent aclconfig check {path}` says more")
    return 0 if section.is_good or profiler.switch == "off" else 1


@command.command("check")
@_file
def check(*, path: str, board: str | None, as_json: bool) -> int:
    """Say whether the runtime would record with this file, and what to change if not. Exit code 1: it would not.

    Example: profagent aclconfig check --board root@192.168.1.20 /opt/app/acl.json
    Example: profagent aclconfig check acl.json
    """
    section = run_to_the_end(lambda: _check(path, board))
    if as_json:
        print_document("aclconfig-check", section_fields(section))
    else:
        click.echo("\n".join(section_lines(section)))
    return 0 if section.is_good else 1


def _plain(value: Any) -> Any:
    """Return a JSON value whose texts hold no lone surrogates, which JSON cannot print."""
    if isinstance(value, dict):
        return {display_text(key): _plain(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_plain(below) for below in value]
    return display_text(value) if isinstance(value, str) else value
