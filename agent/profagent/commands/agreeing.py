"""What somebody else may rely on is replaced only when that is agreed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.commands.board_keys import workshop_certificate
from profagent.deploy.units import other_prefix
from profagent.errors import UsageError
from profagent.link.certificate import Certificate
from profagent.link.credentials import CA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.commands.visiting import Visit
    from profagent.ssh.passwords import Asker

__all__ = ["agreed", "replaced_identity", "replaced_keys", "replaced_service"]


def replaced_keys(visit: Visit, keys: Path) -> Iterator[str]:
    """The workshop whose keys the board has, when it is not that of `keys`."""
    there = visit.facts.files.get(f"{visit.layout.keys}/{CA}")
    if visit.settings.has_tls and there is not None and there.encode() != workshop_certificate(keys):
        yield f"the keys of {_workshop(there)}: hosts that have keys of it will be refused"


def replaced_identity(visit: Visit) -> Iterator[str]:
    """The identity, when it is another board's."""
    if visit.copied_from is not None:
        other = visit.copied_from
        yield f"the identity {other.uuid}: it is that of {other.name}, another machine; keys are made anew, too"


def replaced_service(visit: Visit) -> Iterator[str]:
    """The service, when it is that of another prefix."""
    other = other_prefix(visit.layout, visit.facts.files)
    if other is not None:
        yield f"the service, which starts the daemon below {other}: that is stopped, its files and settings stay"


async def agreed(replaced: Sequence[str], hostname: str, asker: Asker) -> None:
    """Ask whether it may be replaced. Raises UsageError when nobody says so."""
    if replaced and not await asker.confirm(f"Replace {'these' if len(replaced) > 1 else 'this'}? (yes/no) "):
        raise UsageError(
            f"nothing was changed on {hostname}, which is to lose {replaced[0]}",
            hint="say yes at a terminal, or --replace, when nobody needs that any more",
        )


def _workshop(pem: str) -> str:
    try:
        return f"the workshop {Certificate.read(pem.encode(), CA).name}"
    except UsageError:
        return "a workshop that cannot be told"
