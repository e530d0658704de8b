"""Times that commands print for continuous benchmarking, and beside them the caveats that a format lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from profagent.cli.running import tell
from profagent.tables.ci_formats import caveats_beside, ci_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.tables.ci_formats import CiFormat, Measured


def print_measured(format_: CiFormat, measured: Iterable[Measured]) -> None:
    """Print measured times in a format; what it cannot say of them goes to standard error."""
    found = [*measured]
    click.echo(ci_text(format_, found), nl=False)
    for line in caveats_beside(format_, found):
        tell(line)
