"""Every mistake in the settings that can be found without serving, those in the files that they name as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from profagentd.config import DaemonConfig, Examined, need_root
from profagentd.errors import DaemonError
from profagentd.mistakes import Mistake
from profagentd.revocation import Revocations
from profagentd.settings import ARGUMENTS
from profagentd.tls import TlsFiles, server_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator


def mistakes_in(examined: Examined) -> list[Mistake]:
    """What is wrong; files are looked at once the settings themselves are right."""
    return examined.mistakes or list(_mistakes_in_files(examined))


def _mistakes_in_files(examined: Examined) -> Iterator[Mistake]:
    for key, attempt in _ATTEMPTS.items():
        try:
            attempt(examined.config)
        except DaemonError as error:
            yield Mistake(examined.places.get(key, ARGUMENTS), f"{key}: {error}", error.hint)


def _load_tls(config: DaemonConfig) -> None:
    if config.has_tls:
        server_credentials(TlsFiles(config.tls_cert, config.tls_key, config.tls_ca))


def _load_revoked(config: DaemonConfig) -> None:
    if config.tls_revoked:
        Revocations(config.tls_revoked)


_ATTEMPTS: dict[str, Callable[[DaemonConfig], None]] = {
    "roots": need_root,
    "tls_cert": _load_tls,
    "tls_revoked": _load_revoked,
}
