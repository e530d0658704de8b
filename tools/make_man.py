"""Generate the manual pages below man/ from the commands (`make docs`), or check that they are up to date."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profagent import __version__
from profagent.cli.main import EXIT_CODES, GROUPS, group
from profagent.store.workspace import SESSION_FORMS, VARIABLE
from profagentd import main as daemon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDER = Path(__file__).resolve().parent.parent / "man"
NOTICE = '.\\" `make docs` makes this page.'


def main() -> None:
    """Write the pages; with --check end with a message if one is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a page is out of date")
    is_check = parser.parse_args().check
    pages = {FOLDER / "profagent.1": host_page(), FOLDER / "profagentd.8": daemon_page()}
    stale = {file: text for file, text in pages.items() if not file.exists() or file.read_text("ascii") != text}
    if is_check and stale:
        sys.exit(f"out of date, run `make docs`: {', '.join(file.name for file in stale)}")
    for file, text in stale.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "ascii")


def host_page() -> str:
    """Return the page of `profagent`, with a section for each command."""
    lines = [
        *_beginning("profagent", 1, "live profiling of SS928 and SS927 boards"),
        ".SH SYNOPSIS",
        r".B profagent",
        r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        *_text("The NPU's runtime writes JOB… directories on a board. profagent streams them to this host while the"),
        *_text("program runs, keeps an identical copy and a database of the records, and shows, compares and exports"),
        *_text("them. A daemon, profagentd(8), serves the board's side."),
        ".PP",
        *_text("Results go to standard output, remarks to standard error."),
        *_text(f"A session is written {SESSION_FORMS}."),
    ]
    for title, verbs in GROUPS.items():
        lines += [f".SH {escaped(f'COMMANDS: {title}').upper()}"]
        for verb in verbs:
            command = group.get_command(click.Context(group), verb)
            assert command is not None
            for name, leaf in _leaves(verb, command):
                lines += _command(name, leaf)
    lines += [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES.items():
        lines += [".TP", rf"\fB{code}\fR", *_text(meaning)]
    lines += [".SH ENVIRONMENT", ".TP", rf"\fB{escaped(VARIABLE)}\fR", *_text("The workspace, in which captures are.")]
    lines += [".SH SEE ALSO", ".BR profagentd (8)"]
    return "\n".join(lines) + "\n"


def daemon_page() -> str:
    """Return the page of `profagentd`, with its arguments."""
    parser = daemon.make_parser()
    lines = [
        *_beginning("profagentd", 8, "serve a board's profiling data to profagent"),
        ".SH SYNOPSIS",
        r".B profagentd",
        r"[\fIOPTIONS\fR]",
        ".SH DESCRIPTION",
        *_text(parser.description or ""),
    ]
    titles = iter(("OPTIONS", "SIMULATED BOARD"))
    for arguments in (each for each in parser._action_groups if each._group_actions):  # noqa: SLF001 - argparse shows them no other way
        lines += [f".SH {next(titles)}"]
        for action in arguments._group_actions:  # noqa: SLF001 - as above
            words = [", ".join(rf"\fB{escaped(option)}\fR" for option in action.option_strings)]
            if action.nargs != 0:
                value = action.metavar or (
                    f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest
                )
                words.append(rf"\fI{escaped(str(value))}\fR")
            text = (action.help or "").replace("%%", "%").replace("%(default)s", str(action.default))
            lines += [".TP", " ".join(words), *_text(text)]
    if parser.epilog:
        lines += [".SH EXAMPLES", *_verbatim(parser.epilog.strip().splitlines())]
    lines += [".SH SEE ALSO", ".BR profagent (1)"]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return text so that it is printed as it is, in ASCII."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    text = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in text.replace("^", r"\(ha"))
    return text.replace("~", r"\(ti")


def _beginning(name: str, section: int, about: str) -> Iterator[str]:
    yield NOTICE
    yield f'.TH {name.upper()} {section} "" "profagent {__version__}" "profagent manual"'
    yield from (".SH NAME", rf"{name} \- {escaped(about)}")


def _text(text: str) -> list[str]:
    """Return a paragraph as one line; a dot at its beginning makes no request."""
    line = escaped(" ".join(text.split()))
    return [rf"\&{line}" if line.startswith(".") else line] if line else []


def _verbatim(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that stay as they are."""
    yield ".PP"
    yield from (".nf", ".RS 4")
    yield from (rf"\&{escaped(line)}" for line in lines)
    yield from (".RE", ".fi")


def _leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands that do something, with their words."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None
            yield from _leaves(f"{name} {word}", inner)


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    yield f".SS profagent {escaped(name)}"
    arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
    yield rf"\fBprofagent {escaped(name)}\fR [\fIOPTIONS\fR]" + "".join(
        rf" \fI{escaped(each)}\fR" for each in arguments
    )
    for paragraph in (command.help or "").split("\n\n"):
        first, *rest = paragraph.strip("\n").splitlines()
        if first.strip() != "\b":
            yield from (".PP", *_text(paragraph))
        elif rest and rest[0].strip() == "Examples:":
            yield from _verbatim(line.strip() for line in rest[1:])
        else:
            yield from _verbatim(rest)
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden and (record := option.get_help_record(context)):
            label = re.sub(r"(?<![\w-])(--?[\w-]+)", r"\\fB\1\\fR", record[0])
            # The marks of the font are no text, and the text has no such mark.
            parts = re.split(r"(\\f[BR])", label)
            yield from (".TP", "".join(part if part.startswith("\\f") else escaped(part) for part in parts))
            yield from _text(record[1])


if __name__ == "__main__":
    main()
