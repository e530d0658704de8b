"""Telling a night's verdict: a webhook, a mail, a command. Who cannot be told is a remark, and no verdict."""

from __future__ import annotations

import http.client
import platform
import re
import subprocess
import urllib.request
from email.message import EmailMessage
from typing import TYPE_CHECKING

import msgspec

from profagent.cli.table import printable
from profagent.nightly.night import report_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.nightly.night import Night, Tell

_LINK = re.compile(r"<a [^>]*>(.*?)</a>")
WEBHOOK_S, COMMAND_S = 30.0, 120.0


def tell_night(night: Night, to: Tell, page: Path | None = None) -> Iterator[str]:
    """Tell whom the settings name; why it could not be told, a line each. `page` goes with the mail."""
    document = msgspec.json.encode(night.document())
    if to.webhook:
        yield from _posted(to.webhook, document)
    if to.mail:
        yield from _handed(to.sendmail, bytes(mail(night, to, page)), "the mail was not sent")
    if to.command:
        yield from _handed(to.command, document, f"{to.command[0]} was not told")


def mail(night: Night, to: Tell, page: Path | None) -> EmailMessage:
    """The verdict in the subject, the report in the text, and the night's page beside it."""
    message = EmailMessage()
    message["Subject"] = printable(f"profagent: {night.headlines()[0]}")
    message["To"] = ", ".join(to.mail)
    if to.mail_from:
        message["From"] = to.mail_from
    message["Auto-Submitted"] = "auto-generated"
    where = [] if page is None else ["", f"with links to reports and earlier nights: {page} on {platform.node()}"]
    message.set_content("\n".join([*report_lines(night, as_markdown=False), *where]) + "\n")
    if page is not None:
        # Its links lead to files beside it, which are not where the mail is read.
        text = _LINK.sub(r"\1", page.read_text("utf-8"))
        message.add_attachment(text, subtype="html", filename=page.name)
    return message


def _posted(webhook: str, document: bytes) -> Iterator[str]:
    try:
        request = urllib.request.Request(  # noqa: S310 - settings take http:// and https:// only
            webhook, document, {"Content-Type": "application/json"}, method="POST"
        )
        urllib.request.urlopen(request, timeout=WEBHOOK_S).close()  # noqa: S310 - as above
    except (OSError, ValueError, http.client.HTTPException) as error:
        yield f"the webhook was not told: {error}"


def _handed(command: Sequence[str], document: bytes, failed: str) -> Iterator[str]:
    try:
        ended = subprocess.run(  # noqa: S603 - the user's own, from the settings
            command, input=document, timeout=COMMAND_S, check=False, stdout=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        yield f"{failed}: {error}"
    else:
        if ended.returncode:
            yield f"{command[0]} was told, and ended with exit code {ended.returncode}"
