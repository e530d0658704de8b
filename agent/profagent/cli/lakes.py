"""Address of a command's lake: `--lake`, else the environment, else the workspace's settings."""

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
    """Return the address of the lake from the option, else the environment, else the workspace; empty if none is set.

    Raises UsageError for invalid settings of the workspace.
    """
    return address or os.environ.get(VARIABLE) or workspace.lake()


def require_lake(address: str | None, workspace: Workspace | None = None) -> str:
    """Return the address of the lake. Raises UsageError if none is set, or a package that reads it is missing."""
    found = named_lake(address, workspace or Workspace.at(None))
    if not found:
        raise UsageError("no lake is named", hint=f"name one by --lake URL, in {_WHERE}")
    for package in PACKAGES:
        if find_spec(package) is None:
            needed = installing(" ".join(PACKAGES))
            raise UsageError(f"a lake needs {package}, which is not installed", hint=needed)
    return found
