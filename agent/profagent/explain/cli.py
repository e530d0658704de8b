"""`profagent explain`."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.errors import UsageError
from profagent.explain.registry import issue_codes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.codes import IssueCode


@click.command("explain")
@click.argument("code", required=False)
@options.as_json
def command(*, code: str | None, as_json: bool) -> None:
    """Say what a code means and what to do: of the ledger, doctor, advise, a comparison, or a failed command.

    Without a code, list all.

    Example: profagent explain ring-full
    Example: profagent explain --json
    """
    codes = issue_codes()
    chosen = [*codes.values()] if code is None else [_named(code, codes)]
    if as_json:
        print_document("codes", [each._asdict() for each in chosen])
    elif code is None:
        width = max(map(len, codes))
        for each in chosen:
            click.echo(f"{each.code:{width}}  {each.family}, {each.severity}: {each.meaning}")
    else:
        click.echo("\n".join(_lines(chosen[0])))


def _named(code: str, codes: Mapping[str, IssueCode]) -> IssueCode:
    if code in codes:
        return codes[code]
    near = get_close_matches(code, codes, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`profagent explain` lists them"
    raise UsageError(f"there is no code {code!r}", hint=hint)


def _lines(issue: IssueCode) -> Iterator[str]:
    yield f"{issue.code} ({issue.family}, {issue.severity})"
    yield f"  {issue.meaning}"
    if issue.remedy:
        yield f"  To do: {issue.remedy}"
    if issue.exit_code:
        yield f"  Exit code: {issue.exit_code}"
