"""Takes in what programs write: a FIFO for each name, and pipes whose read end a program passes through a socket.

    <run>/ops.NAME     descriptors of svp_acl_prof_model_subscribe, 256 bytes each
    <run>/marks        records of profagent_app.marks and profagent_mark.h, 256 bytes each
    <run>/socket       connect, and send NAME with the read end of a pipe of descriptors (SCM_RIGHTS)

One thread reads all of them at once and writes the spools, so that a program waits for nobody. Only whole records go
into a spool. In place of bytes that are none stands one LOST, which the host counts as a bad record: of marks, what is
between two headers and too short or too long; of descriptors, which have no header, what a program that died left at
its pipe's end; of both, what a program writes beyond its allowance.

Any user of the board may write here. Names, pipes and bytes are bounded for each user and in sum, so that nobody takes
the daemon's descriptors or the disks of board and host; and the thread reads only what it has opened itself, so that
nobody makes it wait.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import selectors
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, NamedTuple

from profagentd.limits import (
    INTAKE_BURST_BYTES,
    INTAKE_BYTES_PER_S,
    INTAKE_READ_BYTES,
    MOST_KEPT,
    MOST_NAMES,
    MOST_NAMES_OF_USER,
    MOST_PASSED,
    MOST_PASSED_OF_USER,
    MOST_WAITING,
    NAMES_PER_S,
    NAMES_PER_S_OF_USER,
    PIECE_RECORDS,
    PIPE_BYTES,
)
from profagentd.spools.spool import Spool, is_good_name

_log = logging.getLogger(__name__)

RECORD_BYTES = 256
LOST = b"\xff" * RECORD_BYTES  # neither a mark nor a descriptor
# Between two reads, so that not every write of a program wakes this thread: a pipe holds 4096 records meanwhile, and
# 256 of them where the kernel gives no larger one.
REST_S = 0.005
# After a turn in which more came than is taken: whoever floods a pipe does not take the processor with it.
LONG_REST_S = 0.05
# A FIFO that could not be opened again, for want of descriptors, is tried so often.
OPEN_AGAIN_S = 1.0
_MARK = re.compile(rb"MARK\x01[\x00-\x03]")  # magic, version, kind
_MARK_BEGINS = re.compile(rb"M(A(R(K\x01?)?)?)?\Z")
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ; Python 3.9 has no name for it

_PEER = struct.Struct("iII")  # SO_PEERCRED: process, user, group

NewSpool = Callable[[str, str], Spool]  # of a kind and a name


class Fifo(NamedTuple):
    """A FIFO that is offered: its path, and the spool that it fills."""

    path: str
    kind: str
    name: str


class _RefusedError(Exception):
    """Why a pipe that was passed is not taken."""


class _Allowance:
    """So much at once, and so much a second."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst, self._per_s = burst, per_s
        self._left, self._since_s = burst, float("-inf")

    def allows(self, amount: float, now_s: float) -> bool:
        """Whether so much more may be taken now."""
        passed_s, self._since_s = now_s - self._since_s, now_s
        self._left = min(self._left + passed_s * self._per_s, self._burst)
        return amount <= self._left

    def take(self, amount: float) -> None:
        """Count what was taken."""
        self._left -= amount


class _User:
    """What one user may pass, or all of them together."""

    def __init__(self, share: int, names: int, names_per_s: float) -> None:
        self.bytes = _Allowance(share * INTAKE_BURST_BYTES, share * INTAKE_BYTES_PER_S)
        self.names = _Allowance(names, names_per_s)


class _Filled:
    """A spool, how many pipes fill it, who named it (None: the settings), and what it may take."""

    def __init__(self, spool: Spool, user: int | None, allowances: Sequence[_Allowance]) -> None:
        self.spool, self.user, self.pipes = spool, user, 0
        self.allowances = allowances
        self.is_refused = False  # more came than it may take


class _Pipe:
    """An open read end, the beginning of a record that is not whole yet, and the FIFO to open anew at its end.

    `user` passed it, where it is no FIFO.
    """

    def __init__(self, descriptor: int, filled: _Filled, fifo: Fifo | None, user: int | None = None) -> None:
        self.descriptor, self.filled, self.fifo, self.user = descriptor, filled, fifo, user
        self.rest = b""
        self.cut = _cut_marks if fifo is not None and fifo.kind == "marks" else _cut_descriptors
        self.is_lost = False  # what was written last is LOST: more of the same is not told again
        # Of marks that were not taken, the last of each who numbers them.
        self.kept: dict[bytes, bytes] = {}


class Intake:
    """The thread and its pipes. `start` makes the FIFOs and raises OSError; `stop` reads what is there, and ends."""

    def __init__(
        self, run: str, ops: Iterable[str], new_spool: NewSpool, *,
        marks: bool = True, now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`ops`: names of FIFOs for descriptors; without one there is no socket either."""
        self._run, self._new_spool, self._now_s = run, new_spool, now_s
        self._fifos = [Fifo(os.path.join(run, "marks"), "marks", "program")] if marks else []
        self._fifos += [Fifo(os.path.join(run, f"ops.{name}"), "ops", name) for name in ops]
        self._spools: dict[tuple[str, str], _Filled] = {}  # the one that was named last at the end
        self._passed: list[_Pipe] = []
        self._users: dict[int, _User] = {}
        self._all_users = _User(2, MOST_NAMES, NAMES_PER_S)
        self._selector = selectors.DefaultSelector()
        self._socket: socket.socket | None = None
        self._waiting: list[socket.socket] = []
        self._unread: list[Fifo] = []  # those that could not be opened again
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._work, name="intake", daemon=True)
        self._lock = -1
        self._is_stopping = False
        self._rest_s = REST_S
        self.torn_records = self.lost_bytes = 0

    def start(self) -> None:
        """Make the FIFOs and the socket, and begin to read."""
        try:
            self._offer()
        except OSError:
            self._close()  # a FIFO that is open and not read would hold up its program
            raise
        self._thread.start()

    def _offer(self) -> None:
        if not os.path.isdir(self._run):
            os.makedirs(self._run)
            os.chmod(self._run, 0o755)  # noqa: S103 - programs of other users open what is in it
        self._lock = _locked(os.path.join(self._run, "lock"))
        for fifo in self._fifos:
            self._open(fifo)
        if not any(fifo.kind == "ops" for fifo in self._fifos):
            return
        path = os.path.join(self._run, "socket")
        _remove_socket(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._socket.bind(path)
        os.chmod(path, 0o666)  # noqa: S103 - whoever runs the profiled program may pass a pipe
        self._socket.listen(16)
        self._selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def stop(self) -> None:
        """Take in what was written so far, then end every spool. Blocks until that is done."""
        self._is_stopping = True
        os.write(self._waker, b"x")
        self._thread.join()
        self._close()
        for filled in self._spools.values():
            _end(filled.spool)

    def _close(self) -> None:
        for pipe in [*self._pipes()]:
            self._end(pipe)
        for each in self._waiting + ([] if self._socket is None else [self._socket]):
            each.close()
        for descriptor in (self._lock, self._wake, self._waker):
            if descriptor >= 0:
                os.close(descriptor)
        self._selector.close()

    def _work(self) -> None:
        try:
            self._take_in()
        except Exception:  # noqa: BLE001 - a pipe that stays open and is not read would hold up its program
            _log.exception("what programs write is taken in no more")
            for key in list(self._selector.get_map().values()):
                if isinstance(key.data, _Pipe):
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                elif isinstance(key.fileobj, socket.socket):
                    self._selector.unregister(key.fd)
                    key.fileobj.close()

    def _take_in(self) -> None:
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        is_last = False
        while not is_last:
            is_last = self._is_stopping  # once more what is there, and no more of who never rests
            keeping = [pipe for pipe in self._pipes() if pipe.kept]
            longest_s = OPEN_AGAIN_S if self._unread or keeping else None
            for key, _ in self._selector.select(0 if is_last else longest_s):
                if isinstance(key.data, _Pipe):
                    self._read(key.data)
                elif key.data is not None:
                    key.data()
            for pipe in keeping:
                self._take(pipe, [])
            if not self._is_stopping:
                self._open_again()
                time.sleep(self._rest_s)
                self._rest_s = REST_S

    def _pipes(self) -> Iterator[_Pipe]:
        yield from (key.data for key in self._selector.get_map().values() if isinstance(key.data, _Pipe))

    def _open_again(self) -> None:
        unread, self._unread = self._unread, []
        for fifo in unread:
            try:
                self._open(fifo)
            except OSError:
                self._unread.append(fifo)

    def _open(self, fifo: Fifo) -> None:
        _make_fifo(fifo.path)  # once more when somebody removed it
        descriptor = os.open(fifo.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._add(_Pipe(descriptor, self._filled(fifo.kind, fifo.name, None), fifo))

    def _add(self, pipe: _Pipe) -> None:
        with contextlib.suppress(OSError):  # beyond this user's limit: a smaller pipe holds less of a burst
            fcntl.fcntl(pipe.descriptor, _SET_PIPE_SIZE, PIPE_BYTES)
        self._selector.register(pipe.descriptor, selectors.EVENT_READ, pipe)
        pipe.filled.pipes += 1

    def _filled(self, kind: str, name: str, user: int | None) -> _Filled:
        """The spool of a name; of a name that a user gives for the first time, a place for it. Raises _RefusedError."""
        key = kind, name
        if key not in self._spools:
            allowances = [_Allowance(INTAKE_BURST_BYTES, INTAKE_BYTES_PER_S)]
            if user is not None:
                self._take_name(user)
                allowances = [self._all_users.bytes, self._users[user].bytes]
            self._spools[key] = _Filled(self._new_spool(kind, name), user, allowances)
        return self._spools[key]

    def _take_name(self, user: int) -> None:
        own = self._users.setdefault(user, _User(1, MOST_NAMES_OF_USER, NAMES_PER_S_OF_USER))
        names = [self._all_users.names, own.names]
        if not all(each.allows(1, self._now_s()) for each in names):
            raise _RefusedError("new names come too often: one a minute is taken")
        self._make_place(user)
        for each in names:
            each.take(1)

    def _make_place(self, user: int) -> None:
        """End a spool of which no program has a pipe any more, where there are as many as may be."""
        named = {key: each for key, each in self._spools.items() if each.user is not None}
        own = {key: each for key, each in named.items() if each.user == user}
        for those, most in ((own, MOST_NAMES_OF_USER), (named, MOST_NAMES)):
            if len(those) < most:
                continue
            idle = next((key for key, each in those.items() if not each.pipes), None)
            if idle is None:
                raise _RefusedError(f"{most} names have a pipe already")
            _end(self._spools.pop(idle).spool)
            return

    def _read(self, pipe: _Pipe) -> None:
        try:
            data = os.read(pipe.descriptor, INTAKE_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            _log.warning("a pipe of %s cannot be read any more: %s", pipe.fifo or "a program", error)
            data = b""
        if not data:
            self._end(pipe)
            return
        records, pipe.rest = pipe.cut(pipe.rest + data)
        self._take(pipe, records)

    def _take(self, pipe: _Pipe, records: list[bytes]) -> None:
        """Write records; one LOST is enough for what one gap is, in however many reads it came."""
        if pipe.kept:
            records = [*pipe.kept.values(), *records]
        if self._is_allowed(pipe, len(records) * RECORD_BYTES):
            pipe.kept.clear()
        elif pipe.cut is _cut_marks:
            _keep_last(pipe.kept, records)
            return
        else:
            records = [LOST]
        if pipe.is_lost and records[:1] == [LOST]:
            records = records[1:]
        if records:
            pipe.is_lost = records[-1] == LOST
            self.torn_records += records.count(LOST)
        for begin in range(0, len(records), PIECE_RECORDS):
            self._write(pipe.filled.spool, b"".join(records[begin : begin + PIECE_RECORDS]))

    def _is_allowed(self, pipe: _Pipe, size: int) -> bool:
        allowances, now_s = pipe.filled.allowances, self._now_s()
        if all(each.allows(size, now_s) for each in allowances):
            for each in allowances:
                each.take(size)
            return True
        if not pipe.filled.is_refused:
            pipe.filled.is_refused = True
            rate = f"{INTAKE_BYTES_PER_S >> 20} MB a second"
            _log.warning("a program writes more to %s than %s: the rest is lost", pipe.fifo or "its pipe", rate)
        self.lost_bytes += size
        self._rest_s = LONG_REST_S
        return False

    def _write(self, spool: Spool, data: bytes) -> None:
        try:
            spool.write(data)
        except OSError as error:
            if not self.lost_bytes:
                _log.warning("what programs write is lost: %s", error)
            self.lost_bytes += len(data)

    def _end(self, pipe: _Pipe) -> None:
        """The last writer is gone, perhaps in the middle of a record; a FIFO waits for the next one."""
        for record in pipe.kept.values():  # few, and they tell of many
            self._write(pipe.filled.spool, record)
        pipe.kept.clear()
        if pipe.rest:
            self._take(pipe, [LOST])
            _log.info("a program ended within a record: %d bytes of it are dropped", len(pipe.rest))
        self._selector.unregister(pipe.descriptor)
        if pipe.fifo is not None and self._thread.is_alive() and not self._is_stopping:
            # Open anew before the old end is closed: what a writer that comes now writes is not dropped between.
            try:
                self._open(pipe.fifo)
            except OSError as error:
                _log.warning("nothing is read of %s until it can be opened again: %s", pipe.fifo.path, error)
                self._unread.append(pipe.fifo)
        pipe.filled.pipes -= 1
        if pipe.fifo is None:
            self._passed.remove(pipe)
        os.close(pipe.descriptor)

    def _accept(self) -> None:
        assert self._socket is not None
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        connection.setblocking(False)
        self._waiting.append(connection)
        if len(self._waiting) > MOST_WAITING:
            self._leave(self._waiting[0])
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(connection))

    def _receive(self, connection: socket.socket) -> None:
        """Take a name and a descriptor; the answer is `ok`, or why not."""
        if connection not in self._waiting:
            return  # it had to leave in this very turn
        descriptors: list[int] = []
        try:
            message, descriptors, _, _ = socket.recv_fds(connection, 256, 4)
            self._take_pipe(message, descriptors, _user_of(connection))
            answer = "ok"
        except (_RefusedError, OSError) as error:
            answer = str(error)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            connection.send(answer.encode())
        self._leave(connection)

    def _leave(self, connection: socket.socket) -> None:
        self._waiting.remove(connection)
        self._selector.unregister(connection)
        connection.close()

    def _take_pipe(self, message: bytes, descriptors: list[int], user: int) -> None:
        """Read a pipe from now on. Raises _RefusedError and OSError."""
        name = message.decode("utf-8", "replace")
        if not is_good_name(name):
            raise _RefusedError("the name has letters, digits, `_` and `.` alone, 64 at most")
        if len(descriptors) != 1 or not self._is_read_end(descriptors[0]):
            raise _RefusedError("one read end of a pipe is wanted")
        if len(self._passed) >= MOST_PASSED:
            raise _RefusedError(f"{MOST_PASSED} pipes were passed already")
        if sum(pipe.user == user for pipe in self._passed) >= MOST_PASSED_OF_USER:
            raise _RefusedError(f"{MOST_PASSED_OF_USER} pipes were passed by this user already")
        # An open file of its own: who passed this one may have it wait, or read what is there away.
        descriptor = os.open(f"/proc/self/fd/{descriptors[0]}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            pipe = _Pipe(descriptor, self._filled("ops", name, user), None, user)
            self._add(pipe)
        except BaseException:
            os.close(descriptor)
            raise
        self._passed.append(pipe)

    def _is_read_end(self, descriptor: int) -> bool:
        """Whether it is a pipe that its giver may read: no path to one, and no FIFO, which has a name and an owner."""
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        status = os.fstat(descriptor)
        is_pipe = stat.S_ISFIFO(status.st_mode) and status.st_dev == os.fstat(self._wake).st_dev
        return is_pipe and not flags & os.O_PATH and flags & os.O_ACCMODE == os.O_RDONLY


def _user_of(connection: socket.socket) -> int:
    """The user whose process connected."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    user: int = _PEER.unpack(credentials)[1]
    return user


def _end(spool: Spool) -> None:
    try:
        spool.close()
    except OSError as error:
        _log.warning("a spool stays without its end: %s", error)


def _keep_last(kept: dict[bytes, bytes], records: Iterable[bytes]) -> None:
    """Keep the last mark of each who numbers marks."""
    for record in records:
        who = record[8:12] + record[46:48]  # process and writer
        if record != LOST and (who in kept or len(kept) < MOST_KEPT):
            kept[who] = record


def _cut_descriptors(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole records, and the beginning of one."""
    whole = len(data) - len(data) % RECORD_BYTES
    return [data[begin : begin + RECORD_BYTES] for begin in range(0, whole, RECORD_BYTES)], data[whole:]


def _cut_marks(data: bytes) -> tuple[list[bytes], bytes]:
    """The same for marks, with LOST for each gap: a record begins with a header, and the next header is behind it."""
    records: list[bytes] = []
    end = 0  # of the last record
    for begin in _marks_in(data):
        records += [LOST] * (begin > end) + [data[begin : begin + RECORD_BYTES]]
        end = begin + RECORD_BYTES
    begun = _MARK.search(data, end) or _MARK_BEGINS.search(data, end)
    rest = len(data) if begun is None else begun.start()
    return records + [LOST] * (rest > end), data[rest:]


def _marks_in(data: bytes) -> Iterator[int]:
    """Where whole records begin. What looks like a header in one may be its text, unless no other follows it."""
    found = _MARK.search(data)
    while found is not None and len(data) - found.start() >= RECORD_BYTES:
        begin, end = found.start(), found.start() + RECORD_BYTES
        within = _MARK.search(data, begin + 1, end + 5)
        goes_on = _MARK.match(data, end) or _MARK_BEGINS.match(data, end) or end == len(data)
        if within is not None and within.start() < end and not goes_on:
            found = within
            continue
        yield begin
        found = _MARK.search(data, end)


def _locked(path: str) -> int:
    """Have the directory to oneself: two readers of one FIFO would each have half of what is written."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OSError(errno.EBUSY, "another profagentd takes in what programs write", path) from None
    return descriptor


def _make_fifo(path: str) -> None:
    """A FIFO that every program may write to, and only the daemon's user read."""
    try:
        os.mkfifo(path)
    except FileExistsError:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, "something else than a FIFO stands there", path) from None
    os.chmod(path, 0o622)  # noqa: S103


def _remove_socket(path: str) -> None:
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass
