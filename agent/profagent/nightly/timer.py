"""The systemd timer of `nightly run`: its two units, where they go, and starting it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from profagent.errors import ProfagentError, UsageError
from profagent.files import make_directory, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Manager", "install_timer", "unit_folder", "units"]

Manager = Literal["user", "system"]
NAMES = ("profagent-nightly.service", "profagent-nightly.timer")
SYSTEMCTL_S = 60.0


def unit_folder(manager: Manager, environment: Mapping[str, str]) -> Path:
    """Where systemd looks for units of the user, or of the system."""
    if manager == "system":
        return Path("/etc/systemd/system")
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def units(settings: Path, at: str) -> dict[str, str]:
    """The units by their names: run the settings, every night at this time (systemd's OnCalendar)."""
    program = shutil.which("profagent") or str(Path(sys.argv[0]).resolve())
    values = {"@PROFAGENT@": _quoted(program), "@SETTINGS@": _quoted(str(settings.resolve())), "@AT@": at}
    texts = {
        name: resources.files("profagent.nightly").joinpath(f"systemd/{name}.in").read_text("utf-8") for name in NAMES
    }
    for name, text in texts.items():
        for key, value in values.items():
            text = text.replace(key, value)  # noqa: PLW2901 - filled in step by step
        texts[name] = text
    return texts


def install_timer(settings: Path, manager: Manager, at: str) -> Path:
    """Write the units and start the timer; the folder. Raises UsageError, ProfagentError."""
    if shutil.which("systemctl") is None:
        raise UsageError("there is no systemctl here", hint="have cron, or what you have, call `profagent nightly run`")
    folder = unit_folder(manager, os.environ)
    make_directory(folder)
    for name, text in units(settings, at).items():
        write_atomically(folder / name, [text.encode()])
    own = ["--user"] if manager == "user" else []
    _systemctl(*own, "daemon-reload")
    _systemctl(*own, "enable", "--now", NAMES[1])
    return folder


def _systemctl(*arguments: str) -> None:
    try:
        ended = subprocess.run(  # noqa: S603 - systemd's own, of whoever calls
            ["systemctl", *arguments],  # noqa: S607 - wherever the system has it
            capture_output=True,
            text=True,
            timeout=SYSTEMCTL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused(arguments, str(error)) from error
    if ended.returncode:
        raise _refused(arguments, ended.stderr.strip() or f"exit code {ended.returncode}")


def _refused(arguments: tuple[str, ...], why: str) -> ProfagentError:
    return ProfagentError(
        f"systemctl {' '.join(arguments)}: {why}",
        hint="the units are written; a timer of a user wants a login of that user (loginctl enable-linger)",
    )


def _quoted(text: str) -> str:
    """A word of a unit's command line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
