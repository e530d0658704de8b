"""`profagent completion`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from profagent.cli.completing import register
from profagent.cli.main import COMPLETE_VARIABLE
from profagent.errors import UsageError
from profagent.files import make_directory, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = "profagent"


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def _config_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _zsh_home() -> Path:
    return Path(os.environ.get("ZDOTDIR") or Path.home())


# Where each shell looks for a user's completions; NEXT says what the user has to do then.
PLACES: dict[str, Callable[[], Path]] = {
    "bash": lambda: _data_home() / "bash-completion" / "completions" / PROGRAM,
    "zsh": lambda: _zsh_home() / ".zfunc" / f"_{PROGRAM}",
    "fish": lambda: _config_home() / "fish" / "completions" / f"{PROGRAM}.fish",
}
NEXT = {
    "bash": "open a new shell; it needs the package bash-completion. Without it, add to ~/.bashrc: source {place}",
    "zsh": "in ~/.zshrc, replace its line with compinit by: fpath+=({place.parent}); autoload -Uz compinit; compinit",
    "fish": "open a new shell",
}

shell_option = click.option(
    "--shell", type=click.Choice([*PLACES]), help="The shell; without it the one that $SHELL names."
)


@click.group("completion")
def command() -> None:
    """Install shell completion of commands, options, boards, sessions, baselines, models and layers.

    Example: profagent completion install
    Example: profagent completion show --shell zsh
    """


@command.command("install")
@shell_option
def install(*, shell: str | None) -> None:
    """Write the completion script to where the shell looks for it, and say what to do next.

    Example: profagent completion install
    Example: profagent completion install --shell fish
    """
    shell = shell or _own_shell()
    place, text = PLACES[shell](), script(shell).encode()
    if place.is_file() and place.read_bytes() == text:
        click.echo(f"{place} is up to date already")
    else:
        make_directory(place.parent)
        write_atomically(place, [text])
        click.echo(f"wrote {place}")
    click.echo(f"next: {NEXT[shell].format(place=place)}")


@command.command("show")
@shell_option
def show(*, shell: str | None) -> None:
    """Print the completion script, to store it elsewhere.

    Example: profagent completion show --shell bash
    Example: profagent completion show --shell zsh
    """
    click.echo(script(shell or _own_shell()), nl=False)


def script(shell: str) -> str:
    """Return the shell's completion script."""
    register()
    completing = get_completion_class(shell)
    assert completing is not None
    root = click.get_current_context().find_root().command
    return completing(root, {}, PROGRAM, COMPLETE_VARIABLE).source()


def _own_shell() -> str:
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in PLACES:
        raise UsageError(
            f"$SHELL names none of the known shells {', '.join(PLACES)}", hint="name your shell with --shell"
        )
    return shell
