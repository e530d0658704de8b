"""Registry of the ledger: every reason with its grade, its meaning, and what to do about it.

Code names a reason by its constant and creates entries with `entry`. The command `ledger` and the reference page are
generated from this table.
"""

from __future__ import annotations

import os
from functools import lru_cache

from msgspec import Struct

from profagent.codes import IssueCode, IssueFamily, Severity
from profagent.errors import FormatError, IncompleteError, UnsupportedBoardError
from profagent.limits import LONGEST_NAME_BYTES, LONGEST_PATH_BYTES, REMEMBERED_PATHS


class Entry(Struct, frozen=True):
    """Content of a ledger entry. `first` and `last` are byte offsets in the log, None where no place is meant."""

    grade: str
    reason: str
    detail: str
    first: int | None = None
    last: int | None = None
    count: int = 1


# The runtime's ring of calls: of the calls between two flushes the newest 511 survive (the-format.md 3.3).
RING_CALLS = 511


def loss_entry(reason: str, detail: str, lost_bytes: int) -> Entry:
    """Return the entry for a Loss of the wire; a reason that costs no bytes of a log is a note."""
    return Entry(grade_of(reason), reason, detail, count=lost_bytes or 1)


def removal_entry(sent: int, size: int) -> list[Entry]:
    """Return the entry for a log that was removed from the board before all of it was sent; none if all was."""
    if size <= sent:
        return []
    detail = f"removed from the board after {sent} of {size} bytes were sent"
    return [entry(REMOVED_UNREAD, detail, sent, size, size - sent)]


def unfollowed_removal(copied: int) -> Entry:
    """Return the entry for a log that was begun, and removed from the board while nobody followed it."""
    detail = f"removed from the board while nobody followed it: data after the first {copied} bytes is lost"
    return entry(REMOVED_UNREAD, detail, copied, copied)


def another_file(reason: str) -> Entry:
    """Return the entry for a file that is not the one that was copied before."""
    # An incomplete log has no committed digest, so it is unknown which of the two files was changed.
    what = "differs from its copy in the mirror" if reason == DIFFERENT else "is not the one that was copied before"
    return entry(reason, f"the file on the board {what}: it is copied again, and the earlier copy is set aside")


def open_removal() -> Entry:
    """Return the entry for a JOB that was removed from the board before it was finished or quiet."""
    detail = "the JOB was removed from the board before its program had ended: data that was not copied is lost"
    return entry(REMOVED_OPEN, detail)


def unfollowed_job_removal(incomplete_logs: int) -> Entry:
    """Return the entry for a JOB that was removed from the board unfinished, and while nobody followed it."""
    detail = (
        f"the JOB was removed from the board while nobody followed it; {incomplete_logs} of its logs are"
        " incomplete: data that was not copied before is lost"
    )
    return entry(REMOVED_OPEN, detail, count=max(incomplete_logs, 1))


def refusal(job: str, error: UnsupportedBoardError) -> tuple[UnsupportedBoardError, Entry]:
    """Return the error and the entry for a JOB of another SoC."""
    named = UnsupportedBoardError(f"{job}: {error}", hint=error.hint)
    return named, entry(UNSUPPORTED_SOC, f"{error}: not read any further")


def ring_entry(calls: int) -> Entry:
    """Return the entry for more calls between two flushes than the runtime's ring holds."""
    detail = (
        f"{calls} calls between two known flushes: the runtime keeps only the newest {RING_CALLS} of a flush, so"
        " older calls may be missing"
    )
    return entry(RING_FULL, detail, count=calls)


# The grades of entries: plain text, as it is stored.
LOSS = Severity.LOSS.value
NOTE = Severity.NOTE.value

# By name, filled by `_reason` while this module is imported, and never changed afterwards.
REASONS: dict[str, IssueCode] = {}
_NOTHING = "Nothing."
_COPY_AGAIN = "Copy the JOB again if the board still has it, and import it with `profagent import --workspace`."


# Returns the name, so that a constant and its row of the table cannot differ.
def _reason(
    name: str, grade: str, text: str, remedy: str = _NOTHING, *, otherwise: str = "", is_incomplete: bool = False
) -> str:
    assert name not in REASONS, name
    exit_code = IncompleteError.exit_code if grade == LOSS or is_incomplete else 0
    REASONS[name] = IssueCode(IssueFamily.LEDGER, name, Severity(grade), text, remedy, exit_code, otherwise)
    return name


def grade_of(reason: str) -> str:
    """Return the grade of a reason from a board; an unknown one is a loss, as it is on the wire."""
    known = REASONS.get(reason)
    return LOSS if known is None else known.severity.value


def entry(
    reason: str,
    detail: str,
    first: int | None = None,
    last: int | None = None,
    count: int = 1,
    *,
    grade: str | None = None,
) -> Entry:
    """Return an entry for a reason of this table, with its grade, or the other `grade` where `otherwise` allows it."""
    known = REASONS[reason]
    usual = known.severity.value
    assert grade in {None, usual} or known.otherwise, (reason, grade)
    return Entry(grade or usual, reason, detail, first, last, count)


# Losses of a board, or on the way from it.
REMOVED_UNREAD = _reason(
    "removed-unread",
    LOSS,
    "A log was removed or replaced on the board before all of it was copied.",
    "Keep JOBs on the board until `record` has ended.",
)
REMOVED_OPEN = _reason(
    "removed-open",
    LOSS,
    "A JOB was removed from the board before its program had ended. Data that was not copied is lost.",
    "Let `record` run until the program has ended; then remove the JOB.",
)
DELETED_UNDELIVERED = _reason(
    "deleted-undelivered",
    LOSS,
    "The daemon deleted logs to make room before their consumer had fetched them.",
    "Run `record` more often, or lower `min_free` on the board; for its spools, raise `spool_cap`.",
)
DISK_FULL = _reason(
    "disk-full",
    LOSS,
    "The board's disk was full, so the runtime could not write its data.",
    "Free the board's disk, or run the daemon with `--retain delivered`.",
)
ADDED_TO_THINNED = _reason(
    "added-to-thinned",
    LOSS,
    "A model that was loaded again added inferences to files that a flight recorder had removed already."
    " These inferences are in no figure.",
    "Record a program that loads a model several times without `--keep-when`.",
)
UNREADABLE = _reason(
    "unreadable",
    LOSS,
    "The daemon, or an import, could not read a file.",
    "Check the file's owner and mode, and the disk.",
)
BAD_PATH = _reason(
    "bad-path",
    LOSS,
    "A file whose path could lead out of the mirror was not copied.",
    "Find out which program made that file on the board.",
)
# What the bytes of a log show.
DROPPED_MARKS = _reason(
    "dropped-marks",
    LOSS,
    "Numbers of a program's marks are missing: no daemon read these marks, or the segment that has them is not here."
    " Marks before the program's first mark that is here count as well.",
    "Start the daemon before the program, and mark less often. Copy what an earlier daemon wrote: `record --backlog`.",
)
TORN_RECORD = _reason("torn-record", LOSS, "The last record of a log is incomplete.", _COPY_AGAIN)
BAD_RECORD = _reason(
    "bad-record",
    LOSS,
    "A record has an invalid format. Its bytes are in the mirror, but are not decoded.",
    "Run `profagent doctor JOB`. If it happens again, send the evidence: `profagent kit`.",
)
MISSING_DATA = _reason(
    "missing-data",
    LOSS,
    "A log is empty or may be cut off, although the runtime had begun its .done file.",
    "Check whether the board's disk was full.",
)
DONE_WITHOUT_DATA = _reason(
    "done-without-data",
    LOSS,
    "A .done file announces bytes, but the data file is missing.",
    "Check whether the board's disk was full, or whether something removed the file.",
    otherwise="it announces no bytes",
)
# Notes about what the runtime does by itself.
SEQUENCE_GAP = _reason(
    "sequence-gap",
    NOTE,
    "Sequence numbers are missing: the runtime leaves out records of some layers, such as those without a time. Figures"
    " say how many layers were recorded, and an inference that lacks one does not count as faster.",
)
SEQUENCE_JUMP = _reason(
    "sequence-jump",
    NOTE,
    "More sequence numbers are missing than the runtime normally leaves out.",
    "Send the evidence to the developers: `profagent kit`.",
)
NO_LAYER = _reason(
    "no-layer",
    NOTE,
    "Records belong to no known layer, and are shown without a layer name.",
    "Copy the whole JOB; the model's .info files may be missing.",
)
LAYER_COUNTS = _reason(
    "layer-counts",
    NOTE,
    "The layer table and the segments of the model have different numbers of layers.",
    "Run `profagent doctor JOB`, and send the evidence: `profagent kit`.",
)
ANNOUNCED_LENGTH = _reason("announced-length", NOTE, "A .done file announces more bytes than the log has.")
APPENDED = _reason("appended", NOTE, "One log holds several inferences, because the model was loaded again.")
NO_DONE = _reason("no-done", NOTE, "The JOB has ended, but a log has no .done file. The end of the log may be missing.")
EMPTY = _reason("empty", NOTE, "The JOB has ended, but a log is empty and has no .done file.")
RING_FULL = _reason(
    "ring-full",
    NOTE,
    "The runtime's buffer of API calls was full between two flushes. Older calls may be missing.",
    "Use a smaller interval in acl.json: the buffer is flushed at each sample.",
)
BEGIN_UNKNOWN = _reason(
    "begin-unknown", NOTE, "API calls began before profiling was started, so their begin is not known."
)
MALFORMED = _reason(
    "malformed",
    NOTE,
    "A small file has an invalid format, or is larger than 4 MiB. It is copied, but not used.",
    "Run `profagent doctor JOB`, and send the evidence: `profagent kit`.",
)
FOREIGN_FILE = _reason("foreign-file", NOTE, "The runtime did not make this file. It is copied, but not read.")
DAMAGED_RESULT = _reason(
    "damaged-result",
    LOSS,
    "A file of another tool's results is damaged or cut off. Data after the damage is lost.",
    "Export the results again with that tool, then import them again.",
)
JOINED_RESULT = _reason(
    "joined-result",
    NOTE,
    "A file of another tool's results was joined, padded or possibly cut. It has several tables or arrays, NUL bytes"
    " between them, or a last line without an end. All of it is read.",
    "Nothing. If it contains the same file twice, import that file alone.",
)
UNKNOWN_FAMILY = _reason(
    "unknown-family",
    NOTE,
    "A file beside the results belongs to no known family. Of a timeline, only known events are counted.",
    "Nothing. The view `ascend_values` has the rows of the file.",
)
NOT_COUNTED = _reason(
    "not-counted",
    NOTE,
    "No figure counts a part of another tool's results. The part is an older export of data that was imported, has no"
    " duration or no start, or is an event of an unknown form.",
    "Nothing. The entry says which part, and why.",
)
NOT_TAKEN = _reason(
    "not-taken",
    NOTE,
    "Files in or beside the imported folder were not imported: they belong to no known family, or are raw data."
    " Files that belong to no session are listed in the first session of the import.",
    "See each file with the cause: `profagent import --json`.",
)
MISSING_SEGMENT = _reason(
    "missing-segment",
    NOTE,
    "Segments of a spool were not copied. The daemon deleted them at the cap (which is a loss of its own), or another"
    " host fetched them.",
    "Run `record` while the program runs, or raise `spool_cap` on the board.",
)
DAEMON_KILLED = _reason(
    "daemon-killed",
    NOTE,
    "The board's daemon was killed, or the board went down. Data that programs sent until the daemon ran again is"
    " missing. Only missing marks are counted, as `dropped-marks`.",
    "Look for the cause in the board's system log.",
)
NO_DECODER = _reason(
    "no-decoder",
    NOTE,
    "A directory belongs to a source that this profagent does not know. It is copied, but not read.",
    "Upgrade profagent on this host.",
)
NOT_A_FILE = _reason(
    "not-a-file",
    NOTE,
    "A directory, a link or a device is in the place of a file. It is not followed, and not part of this session.",
    "For a directory: `profagent import PATH` searches it, and makes sessions of its own.",
)
NO_FREQUENCY = _reason(
    "no-frequency",
    NOTE,
    "The JOB has no info.json.0, which has the NPU's clock. Times of layers are not known.",
    "Copy the whole JOB directory.",
)
UNSUPPORTED_SOC = _reason(
    "unsupported-soc",
    NOTE,
    "The JOB comes from another SoC (Hi3519DV500). It is not read.",
    "Use the vendor's tool for that SoC.",
)
SAMPLE_LATE = _reason(
    "sample-late",
    NOTE,
    "The runtime recorded an inference later than due, because it was still writing an earlier one.",
    "Use a larger interval, or a faster disk on the board.",
)
SAMPLE_NEVER_CAME = _reason(
    "sample-never-came",
    NOTE,
    "The runtime did not record some inferences that were due.",
    "Use a larger interval, or a faster disk on the board.",
)
INTERVAL_MISMATCH = _reason(
    "interval-mismatch",
    NOTE,
    "The recorded inferences do not fit the interval of the acl.json.",
    "Name the acl.json that the program read: `--acl-json FILE`.",
)
IMPLAUSIBLE_COUNTER = _reason(
    "implausible-counter",
    NOTE,
    "Counters have impossible values: the counter map may be wrong.",
    "Learn a map with `profagent calibrate`, then `profagent redecode`.",
)
# Notes about the capture itself.
DIFFERENT = _reason(
    "different",
    NOTE,
    "The file on the board differs from the copy. It is copied again, and the earlier copy is set aside.",
)
RECREATED = _reason(
    "recreated",
    NOTE,
    "A new file was made under the name of a log. It is copied, and the earlier copy is set aside.",
)
MIRROR_CHANGED = _reason(
    "mirror-changed",
    NOTE,
    "A file in the mirror lost bytes or was edited. Data that the board still has is copied again.",
    "Do not edit the mirror; check the host's disk.",
)
STOPPED_EARLY = _reason(
    "stopped-early",
    NOTE,
    "`record` was stopped before it had copied everything. The exit code is 4.",
    "Run `record` again: it continues the session.",
    is_incomplete=True,
)
NOT_COVERED = _reason(
    "not-covered",
    NOTE,
    "The capture ended while the link was down, the board silent, or the host's disk full. The board may have more"
    " data."
    " The exit code is 4.",
    "Correct the cause that the entry names, and run `record` again: it continues the session.",
    is_incomplete=True,
)
NOTHING_RECORDED = _reason(
    "nothing-recorded",
    NOTE,
    "No record of a program was captured. The exit code is 4 if `record` was given an end that needs records.",
    "Check that the program runs, that profiling is on (`profagent doctor`), and that the program's output directory"
    " is below a root of the daemon.",
    is_incomplete=True,
)
# Notes that make a capture incomplete. The view `sessions` names them as well.
INCOMPLETE = frozenset(name for name, each in REASONS.items() if each.severity is Severity.NOTE and each.exit_code)
MORE = _reason(
    "more",
    NOTE,
    "A JOB or a board has more than 1,000 entries. The entries beyond that number are only counted here.",
    "Read the entries that are listed.",
    otherwise="the entries that it counts are losses",
)
TOO_LARGE = _reason(
    "too-large",
    NOTE,
    "`watch` only: a file or a JOB is larger than `watch` keeps in memory.",
    "Use `record`, which stores everything.",
)


_NO_NAMES = frozenset((b"", b".", b".."))


@lru_cache(REMEMBERED_PATHS)
def checked_path(path: bytes) -> str:
    """Return the path of a log inside its JOB as text; raise FormatError if it could lead elsewhere."""
    parts = path.split(b"/")
    is_too_long = len(path) > LONGEST_PATH_BYTES or max(map(len, parts)) > LONGEST_NAME_BYTES
    if is_too_long or b"\0" in path or not _NO_NAMES.isdisjoint(parts):
        raise FormatError(
            file=repr(path[:80]), offset=0, expected="a relative path without '.' or '..'", found=f"{len(path)} bytes"
        )
    return os.fsdecode(path)
