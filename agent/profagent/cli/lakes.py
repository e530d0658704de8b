"""Where a command's lake is: `--lake`, else the environment, else what the workspace's settings name."""

from __future__ import annotations

import os
from importlib.util import find_spec

import click

from profagent.cli.running import installing
from profagent.errors import UsageError
from profagent.store.workspace import SETTINGS, Workspace

VARIABLE = "PROFAGENT_LAKE"
PACKAGES = ("deltalake", "duckdb", "pyarrow")
_WHERE = f"${VARIABLE}, else `lake` in the workspace's {SETTINGS}"

in_lake = click.option(
    "--lake", "address", metavar="URL", help=f"The lake: a folder that hosts share, or s3://BUCKET/PREFIX ({_WHERE})."
)


def named_lake(address: str | None, workspace: Workspace) -> str:
    """Return the address of the lake that an option, else the environment, else a workspace names; else empty.

    Raises UsageError for settings of the workspace that cannot be.
    """
    return address or os.environ.get(VARIABLE) or workspace.lake()


def require_lake(address: str | None, workspace: Workspace | None = None) -> str:
    """Return the address that is named. Raises UsageError where none is, or what reads a lake is not installed."""
    found = named_lake(address, workspace or Workspace.at(None))
    if not found:
        raise UsageError("no lake is named", hint=f"name one by --lake URL, in {_WHERE}")
    for package in PACKAGES:
        if find_spec(package) is None:
            needed = installing(" ".join(PACKAGES))
            raise UsageError(f"a lake needs {package}, which is not installed", hint=needed)
    return found
