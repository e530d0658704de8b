"""What is odd in one data log: facts gathered while it was decoded, weighed against its `.done`. Pure.

A loss is bytes or records that existed and are gone; a note is what the runtime does by itself (format page 1 to 3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profagent.ingest import reasons

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.formats.done import Done
    from profagent.ingest.changes import Entry

# The runtime's ring of calls: of the calls between two flushes the newest 511 survive (format page 3.3).
RING_CALLS = 511


@dataclass(slots=True)
class Places:
    """Where something was found: first and last byte offset, and how many there are."""

    count: int = 0
    first: int = 0
    last: int = 0

    def add(self, first: int, last: int, count: int) -> None:
        """Note `count` finds between two byte offsets; places come in ascending order."""
        if self.count == 0:
            self.first = first
        self.last = last
        self.count += count

    def entry(self, reason: str, detail: str) -> Entry:
        """These places as a ledger entry."""
        return reasons.entry(reason, detail, self.first, self.last, self.count)


@dataclass(slots=True)
class LogFacts:
    """What decoding one data log has shown so far. Sizes are bytes."""

    record_bytes: int
    size: int = 0
    stretches: int = 0
    last_stretch_start: int = 0
    missing: Places = field(default_factory=Places)
    jumped: Places = field(default_factory=Places)
    nameless: Places = field(default_factory=Places)
    without_magic: Places = field(default_factory=Places)
    begun_before: Places = field(default_factory=Places)


def assess(
    facts: LogFacts, done: Done | None, *, settled: bool, ended: bool, is_done_empty: bool = False
) -> tuple[Entry, ...]:
    """Everything odd about a log. `settled`: the board says that it is complete; `ended`: its JOB has ended.

    `is_done_empty`: there is a `.done`, without a byte.
    """
    entries = list(_of_records(facts))
    if settled or ended:
        entries += _of_size(facts, done)
    if ended and done is None:
        entries.append(_unvouched(facts, is_done_empty=is_done_empty))
    return tuple(entries)


def orphan_done(file_len: int | None) -> Entry:
    """A `.done` whose data is not there."""
    if not file_len:
        return reasons.entry(
            reasons.DONE_WITHOUT_DATA, "a .done without data that announces no bytes", grade=reasons.NOTE
        )
    detail = f"the .done announces {file_len} bytes, there is no data: it could not be written or was removed"
    return reasons.entry(reasons.DONE_WITHOUT_DATA, detail, count=file_len)


def ring_entry(calls: int) -> Entry:
    """More calls between two flushes than the runtime's ring holds."""
    detail = (
        f"{calls} calls between flushes that are known: the runtime keeps the newest {RING_CALLS} of each flush,"
        " older ones may be missing"
    )
    return reasons.entry(reasons.RING_FULL, detail, count=calls)


def _of_records(facts: LogFacts) -> Iterator[Entry]:
    if facts.missing.count:
        yield facts.missing.entry(reasons.SEQUENCE_GAP, "records missing from the sequence: the runtime's filter")
    if facts.jumped.count:
        yield facts.jumped.entry(reasons.SEQUENCE_JUMP, "records missing: more than the runtime's filter leaves out")
    if facts.nameless.count:
        yield facts.nameless.entry(reasons.NO_LAYER, "records without a known layer: shown without a name")
    if facts.without_magic.count:
        yield facts.without_magic.entry(
            reasons.BAD_RECORD, "expected 0x00005A5A at the record's start: bytes kept, record not decoded"
        )
    if facts.begun_before.count:
        yield facts.begun_before.entry(reasons.BEGIN_UNKNOWN, "calls that began before profiling was started")


def _unvouched(facts: LogFacts, *, is_done_empty: bool) -> Entry:
    """Data of an ended JOB without a `.done`. The runtime begins one only where there were bytes to announce."""
    if is_done_empty:
        missing = "may miss its end" if facts.size else "has no bytes"
        return reasons.entry(
            reasons.MISSING_DATA, f"the .done is empty, this data {missing}: the disk may have been full"
        )
    if facts.size:
        return reasons.entry(reasons.NO_DONE, "no .done vouches for this data: it may miss its end")
    return reasons.entry(reasons.EMPTY, "the log is empty and has no .done: nothing was recorded in it")


def _of_size(facts: LogFacts, done: Done | None) -> Iterator[Entry]:
    torn = facts.size % facts.record_bytes
    if torn:
        start = facts.size - torn
        detail = f"the last record has {torn} of {facts.record_bytes} bytes"
        yield reasons.entry(reasons.TORN_RECORD, detail, start, facts.size)
    if done is None:
        return
    if done.file_len > facts.size:
        announced = f"the .done announces {done.file_len} bytes, the file has {facts.size}"
        if facts.size == 0:
            yield reasons.entry(reasons.MISSING_DATA, f"{announced}: it could not be written", count=done.file_len)
        else:
            detail = f"{announced}: a short read, or bytes counted for an earlier inference"
            yield reasons.entry(reasons.ANNOUNCED_LENGTH, detail, count=done.file_len - facts.size)
    if facts.stretches > 1:
        detail = f"{facts.stretches} inferences in one file: the model was loaded again"
        yield reasons.entry(reasons.APPENDED, detail, facts.last_stretch_start, facts.size, facts.stretches)
