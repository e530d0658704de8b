"""`profagent advise`."""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import msgspec

from profagent.advise.advise import advise
from profagent.advise.report import advice_document, advice_lines, vendor_document
from profagent.advise.rules import LANGUAGES, all_rules
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import tell_incomplete
from profagent.cli.running import asynchronous, tell
from profagent.cli.target import target_options, tell_unrecorded
from profagent.files import make_directory, write_atomically
from profagent.tables.table import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.advise.advise import Advice
    from profagent.advise.rules import Language, Rule
    from profagent.store.target import Target

F = TypeVar("F", bound="Callable[..., Any]")

# The vendor's name for advice; the number is the device's.
VENDOR_FILE = "prof_rule_0.json"


def usual_language() -> Language:
    """Return the language that LC_ALL, LC_MESSAGES or LANG asks for: Chinese, else English."""
    named = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "zh" if named.lower().startswith("zh") else "en"


def advice_options(function: F) -> F:
    """Add `SESSION|JOB`, `--rules` and `--lang`: the command gets its `target`, `rules` and `language`."""

    @click.option(
        "--rules",
        "folders",
        multiple=True,
        type=options.FOLDER,
        metavar="DIR",
        help="A file or folder of your own rules, besides those in WORKSPACE/rules; may be repeated.",
    )
    @click.option(
        "--lang",
        "language",
        type=click.Choice(LANGUAGES),
        help="Language of findings and advice, and of the whole page of `report`; other output is English."
        "  [default: zh if LANG is Chinese, else en]",
    )
    @wraps(function)
    async def with_rules(*, target: Target, folders: tuple[Path, ...], language: Language | None, **others: Any) -> Any:
        rules = all_rules(target.database, target.session, folders)
        return await function(target=target, rules=rules, language=language or usual_language(), **others)

    return cast("F", target_options(with_rules))


@click.command("advise", cls=options.SessionCommand)
@asynchronous
@advice_options
@options.as_json
@click.option(
    "-o",
    "output",
    type=options.FOLDER,
    metavar="DIR",
    help=f"Write {VENDOR_FILE}, named as the vendor's tools do, into this folder; its form is unverified.",
)
async def command(*, target: Target, rules: list[Rule], language: Language, as_json: bool, output: Path | None) -> int:
    """Say what slows a run down, on which evidence, and how much time a change could save at most.

    The rules are queries over the database's views, with the thresholds of the vendor's manual. With --job, findings
    about layers are limited to that JOB.

    Example: profagent advise 3
    Example: profagent advise 3 --lang zh
    """
    advice = await advise(target.database, rules, session=target.session, job=target.job, language=language)
    if output is not None:
        _write(advice, output)
    if as_json:
        print_document("advise", advice_document(advice))
    else:
        for line in advice_lines(advice, language):
            click.echo(printable(line))
    await tell_incomplete(target.database, [target.session])
    return 0 if advice.findings else await tell_unrecorded(target.database, target.session, target.job)


def _write(advice: Advice, folder: Path) -> None:
    make_directory(folder)
    file = folder / VENDOR_FILE
    write_atomically(file, [msgspec.json.format(msgspec.json.encode(vendor_document(advice)))])
    tell(f"{file} is written; its form is unverified: it could not be compared with a file of the vendor's tool")
