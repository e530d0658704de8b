"""Every mistake in the settings that can be found without serving, those in the files that they name as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagentd.config import TLS_FILES, Examined, need_root
from profagentd.errors import DaemonError
from profagentd.mistakes import Mistake
from profagentd.revocation import Revocations
from profagentd.settings import ARGUMENTS
from profagentd.tls import faults_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.config import DaemonConfig


def mistakes_in(examined: Examined) -> list[Mistake]:
    """What is wrong: in the settings themselves, then in the files that those name which make sense."""
    return [*examined.mistakes, *_mistakes_in_files(examined)]


def _mistakes_in_files(examined: Examined) -> Iterator[Mistake]:
    for key, error in _faults(examined.config, examined.wrong):
        yield Mistake(examined.places.get(key, ARGUMENTS), f"{key}: {error}", error.hint)


def _faults(config: DaemonConfig, wrong: frozenset[str]) -> Iterator[tuple[str, DaemonError]]:
    """What serving would stumble over, with its key; nothing of keys whose values are not known."""
    if "roots" not in wrong:
        try:
            need_root(config)
        except DaemonError as error:
            yield "roots", error
    if all(getattr(config, key) for key in TLS_FILES):
        yield from faults_of(config.tls_files)
    if config.tls_revoked:
        try:
            Revocations(config.tls_revoked)
        except DaemonError as error:
            yield "tls_revoked", error
