"""Telling a night's verdict: to a webhook, and to a command."""

from __future__ import annotations

import http.client
import subprocess
import urllib.request
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.nightly.settings import Tell
    from profagent.nightly.verdict import Night

__all__ = ["tell_night"]

WEBHOOK_S = 30.0
COMMAND_S = 120.0


def tell_night(night: Night, to: Tell) -> list[str]:
    """Tell whom the settings name; why it could not be told, a line each."""
    return [*_posted(night, to.webhook), *_run(night, to.command)]


def _posted(night: Night, address: str) -> Iterator[str]:
    if not address:
        return
    request = urllib.request.Request(  # noqa: S310 - settings take http:// and https:// only
        address, msgspec.json.encode(night.document()), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=WEBHOOK_S):  # noqa: S310 - as above
            pass
    except (OSError, ValueError, http.client.HTTPException) as error:
        yield f"the webhook was not told: {error}"


def _run(night: Night, command: list[str]) -> Iterator[str]:
    if not command:
        return
    try:
        ended = subprocess.run(  # noqa: S603 - the user's own, from the settings
            command,
            input=msgspec.json.encode(night.document()),
            timeout=COMMAND_S,
            check=False,
            stdout=subprocess.DEVNULL,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        yield f"{command[0]} was not told: {error}"
        return
    if ended.returncode:
        yield f"{command[0]} was told, and ended with exit code {ended.returncode}"
