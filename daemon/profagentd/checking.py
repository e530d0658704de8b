"""Every mistake in the settings that can be found without serving, those in the files that they name as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagentd.config import NO_ROOT, Examined
from profagentd.errors import DaemonError
from profagentd.mistakes import Mistake
from profagentd.named_roots import file_mistakes
from profagentd.revocation import Revocations
from profagentd.settings import ARGUMENTS
from profagentd.tls import faults_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.config import DaemonConfig


def mistakes_in(examined: Examined, *, needs_root: bool = True) -> list[Mistake]:
    """What is wrong: in the settings themselves, then in what is there of the paths that sound ones name."""
    no_root = _no_root(examined) if needs_root else ()
    return [*examined.mistakes, *no_root, *file_mistakes(examined.root_places), *_mistakes_in_files(examined)]


def _no_root(examined: Examined) -> Iterator[Mistake]:
    """Nothing where it is not known what names roots."""
    if examined.config.is_rootless and examined.wrong.isdisjoint(("roots", "roots_d")):
        text, hint = NO_ROOT
        yield Mistake(examined.places.get("roots", ARGUMENTS), f"roots: {text}", hint)


def _mistakes_in_files(examined: Examined) -> Iterator[Mistake]:
    for key, error in _faults(examined.config):
        yield Mistake(examined.places[key], f"{key}: {error}", error.hint)


def _faults(config: DaemonConfig) -> Iterator[tuple[str, DaemonError]]:
    """What serving would stumble over in the files that are named, with the key."""
    yield from faults_of(config.tls_files)
    if config.tls_revoked:
        try:
            Revocations(config.tls_revoked)
        except DaemonError as error:
            yield "tls_revoked", error
