"""By what a machine is known again, beside the identity that was written there: an image takes that to other machines.

A mark is KIND:VALUE; which of them a board has is told by the survey, and by its SSH server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["is_another_machine"]

# Each board's own, the surest first.
_HARDWARE = ("mac", "serial")
# An image's, made anew at a first boot if its maker saw to that.
_IMAGE = ("machine-id", "host-key")


def is_another_machine(before: Collection[str], now: Collection[str], *, by_image: bool) -> bool:
    """Whether these are not the marks of one machine; False where nothing tells.

    `by_image`: where no hardware tells, all marks of the image being others does, too.
    """
    for kind in _HARDWARE:
        if (old := _of(before, (kind,))) and (new := _of(now, (kind,))):
            return not old & new
    shared = [kind for kind in _IMAGE if _of(before, (kind,)) and _of(now, (kind,))] if by_image else []
    return bool(shared) and not _of(before, shared) & _of(now, shared)


def _of(marks: Iterable[str], kinds: Collection[str]) -> set[str]:
    return {mark for mark in marks if mark.partition(":")[0] in kinds}
