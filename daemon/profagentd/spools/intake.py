"""The intake of programs' records: a FIFO for each name, and pipes whose read end a program passes through a socket.

A *descriptor* of an operator is one record of the runtime; a *file descriptor* is the kernel's.

<run>/ops.NAME     descriptors of svp_acl_prof_model_subscribe, 256 bytes each
<run>/marks        records of profagent_app.marks and profagent_mark.h, 256 bytes each
<run>/socket       connect, and send NAME with the read end of a pipe of descriptors (SCM_RIGHTS)

One thread reads all of them and writes the spools, so that no program waits. Only whole records go into a spool.
Anything else is replaced by one LOST record, which the host counts as a bad record. For marks that is what stands
between two headers and has not the length of a record; for descriptors, which have no header, what a program that died
left at its pipe's end; for both, what a program writes beyond its allowance.

Any user of the board may write here. So names, pipes and bytes are bounded for each user and in total, to protect the
daemon's descriptors and the disks of board and host. The thread reads only files that it has opened itself, so that
nobody can make it wait.
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
    MOST_NAMES,
    MOST_NAMES_OF_USER,
    MOST_PASSED,
    MOST_PASSED_OF_USER,
    MOST_WAITING,
    NAMES_PER_S,
    NAMES_PER_S_OF_USER,
    PIECE_RECORDS,
    PIPE_BYTES,
    REMEMBERED_WRITERS,
)
from profagentd.spools.spool import Spool, is_valid_name

_log = logging.getLogger(__name__)

RECORD_BYTES = 256
LOST = b"\xff" * RECORD_BYTES  # valid as neither a mark nor a descriptor
# Pause between two reads, so that not every write of a program wakes this thread. A pipe holds 4096 records meanwhile,
# or 256 where the kernel allows no larger one.
REST_S = 0.005
# Pause after a round in which a program exceeded its allowance, so that a flooded pipe does not take the processor.
LONG_REST_S = 0.05
# Interval of retrying a FIFO that could not be opened again, for want of descriptors.
OPEN_AGAIN_S = 1.0
_MARK = re.compile(rb"MARK\x01[\x00-\x03]")  # magic, version, kind
_MARK_BEGINS = re.compile(rb"M(A(R(K\x01?)?)?)?\Z")
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ; Python 3.9 has no name for it

_PEER = struct.Struct("iII")  # SO_PEERCRED: process, user, group

NewSpool = Callable[[str, str], Spool]  # of a kind and a name


class Fifo(NamedTuple):
    """FIFO for programs: its path, and the spool that it fills."""

    path: str
    kind: str
    name: str


class _PipeError(Exception):
    """A pipe that a program passed is refused; the text says why."""


class _Allowance:
    """Token bucket: an amount at once, and an amount a second."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst, self._per_s = burst, per_s
        self._available, self._since_s = burst, float("-inf")  # amount available, as of this time

    def allows(self, amount: float, now_s: float) -> bool:
        """Return True if this amount may be taken now."""
        passed_s, self._since_s = now_s - self._since_s, now_s
        self._available = min(self._available + passed_s * self._per_s, self._burst)
        return amount <= self._available

    def take(self, amount: float) -> None:
        """Take the amount, which `allows` has permitted."""
        self._available -= amount


class _User:
    """Allowances of one user, or of all users together."""

    def __init__(self, share: int, names: int, names_per_s: float) -> None:
        self.bytes = _Allowance(share * INTAKE_BURST_BYTES, share * INTAKE_BYTES_PER_S)
        self.names = _Allowance(names, names_per_s)


class _FilledSpool:
    """Spool with the number of pipes that fill it, the user who named it (None: the settings), and its allowances."""

    def __init__(self, spool: Spool, user: int | None, allowances: Sequence[_Allowance]) -> None:
        self.spool, self.user, self.pipes = spool, user, 0
        self.allowances = allowances
        self.is_refused = False  # it exceeded an allowance, which is logged once


class _Pipe:
    """Open read end. `fifo` is opened anew at its end; a pipe without one was passed by `user`."""

    def __init__(self, descriptor: int, filled: _FilledSpool, fifo: Fifo | None, user: int | None = None) -> None:
        self.descriptor, self.filled, self.fifo, self.user = descriptor, filled, fifo, user
        self.partial = b""  # beginning of a record whose rest has not arrived
        self.split = _split_marks if fifo is not None and fifo.kind == "marks" else _split_descriptors
        self.ends_with_lost = False  # the last record written is LOST: a gap that goes on is the same gap
        # The last refused mark of each writer. Marks are numbered by writer, so it shows the host how many are missing.
        self.last_marks: dict[bytes, bytes] = {}


class Intake:
    """Thread that reads all pipes. `start` makes the FIFOs and may raise OSError; `stop` reads the rest and ends."""

    def __init__(
        self, run: str, ops: Iterable[str], new_spool: NewSpool, *,
        marks: bool = True, now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Prepare FIFOs for descriptors under the names `ops`. Without any name there is no socket either."""
        self._run, self._new_spool, self._now_s = run, new_spool, now_s
        self._fifos = [Fifo(os.path.join(run, "marks"), "marks", "program")] if marks else []
        self._fifos += [Fifo(os.path.join(run, f"ops.{name}"), "ops", name) for name in ops]
        self._spools: dict[tuple[str, str], _FilledSpool] = {}  # by kind and name, the newest last
        self._passed: list[_Pipe] = []  # pipes passed through the socket
        self._users: dict[int, _User] = {}  # by user number
        # Of all users together: twice the bytes of one user.
        self._all_users = _User(2, MOST_NAMES, NAMES_PER_S)
        # Pipes, the listening socket, its connections, and the wake-up pipe.
        self._selector = selectors.DefaultSelector()
        self._socket: socket.socket | None = None
        # Connections that have sent nothing yet, the oldest first; bounded by MOST_WAITING.
        self._connections: list[socket.socket] = []
        self._unopened: list[Fifo] = []  # FIFOs that could not be opened again
        # The pipe by which `stop` wakes the thread.
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._work, name="intake", daemon=True)
        self._lock = -1  # descriptor of the lock file in the run directory
        self._is_stopping = False  # set by `stop`, read by the thread after each round
        self._rest_s = REST_S  # pause after this round
        # LOST records written, and bytes refused or not accepted by the disk; for tests and the log.
        self.torn_records = self.lost_bytes = 0

    def start(self) -> None:
        """Make the FIFOs and the socket, and start the thread. Raises OSError."""
        try:
            self._make_endpoints()
        except OSError:
            self._close()  # a FIFO that is open but not read would block its program
            raise
        self._thread.start()

    def _make_endpoints(self) -> None:
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
        """Read what was written so far, then end every spool. Blocks until that is done."""
        self._is_stopping = True
        # Wakes the thread from `select`, after the flag was set.
        os.write(self._waker, b"x")
        self._thread.join()
        self._close()
        for filled in self._spools.values():
            _end(filled.spool)

    def _close(self) -> None:
        for pipe in [*self._pipes()]:
            self._end(pipe)
        for each in self._connections + ([] if self._socket is None else [self._socket]):
            each.close()
        for descriptor in (self._lock, self._wake, self._waker):
            if descriptor >= 0:
                os.close(descriptor)
        self._selector.close()

    def _work(self) -> None:
        try:
            self._read_all()
        except Exception:  # noqa: BLE001 - a pipe that stays open but is not read would block its program
            _log.exception("what programs write is taken in no more")
            for key in list(self._selector.get_map().values()):
                if isinstance(key.data, _Pipe):
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                elif isinstance(key.fileobj, socket.socket):
                    self._selector.unregister(key.fd)
                    key.fileobj.close()

    def _read_all(self) -> None:
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        is_last = False
        while not is_last:
            is_last = self._is_stopping  # one last round: a program that never pauses must not delay the end
            withheld = [pipe for pipe in self._pipes() if pipe.last_marks]
            longest_s = OPEN_AGAIN_S if self._unopened or withheld else None
            for key, _ in self._selector.select(0 if is_last else longest_s):
                if isinstance(key.data, _Pipe):
                    self._read(key.data)
                elif key.data is not None:
                    key.data()
            for pipe in withheld:
                self._write_records(pipe, [])
            if not self._is_stopping:
                self._open_again()
                time.sleep(self._rest_s)
                self._rest_s = REST_S

    def _pipes(self) -> Iterator[_Pipe]:
        yield from (key.data for key in self._selector.get_map().values() if isinstance(key.data, _Pipe))

    def _open_again(self) -> None:
        unopened, self._unopened = self._unopened, []
        for fifo in unopened:
            try:
                self._open(fifo)
            except OSError:
                self._unopened.append(fifo)

    def _open(self, fifo: Fifo) -> None:
        _make_fifo(fifo.path)  # again, in case that somebody removed it
        # Without O_NONBLOCK the open would wait for the FIFO's first writer.
        descriptor = os.open(fifo.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._add(_Pipe(descriptor, self._spool_for(fifo.kind, fifo.name, None), fifo))

    def _add(self, pipe: _Pipe) -> None:
        with contextlib.suppress(OSError):  # above this user's limit the pipe stays small, and holds less of a burst
            fcntl.fcntl(pipe.descriptor, _SET_PIPE_SIZE, PIPE_BYTES)
        self._selector.register(pipe.descriptor, selectors.EVENT_READ, pipe)
        pipe.filled.pipes += 1

    def _spool_for(self, kind: str, name: str, user: int | None) -> _FilledSpool:
        """Return the spool of a name; a name that a user gives for the first time is admitted. Raises _PipeError."""
        key = kind, name
        if key not in self._spools:
            allowances = [_Allowance(INTAKE_BURST_BYTES, INTAKE_BYTES_PER_S)]
            if user is not None:
                self._admit_name(user)
                allowances = [self._all_users.bytes, self._users[user].bytes]
            self._spools[key] = _FilledSpool(self._new_spool(kind, name), user, allowances)
        return self._spools[key]

    def _admit_name(self, user: int) -> None:
        own = self._users.setdefault(user, _User(1, MOST_NAMES_OF_USER, NAMES_PER_S_OF_USER))
        names = [self._all_users.names, own.names]
        if not all(each.allows(1, self._now_s()) for each in names):
            raise _PipeError("new names come too often: one a minute is taken")
        self._make_room_for_name(user)
        for each in names:
            each.take(1)

    def _make_room_for_name(self, user: int) -> None:
        """End a spool without pipes if the user's names, or those of all users, are at their limit. Raises _PipeError.

        One spool is enough: the user's own names count among all, so ending one makes room in both.
        """
        named = {key: each for key, each in self._spools.items() if each.user is not None}
        own = {key: each for key, each in named.items() if each.user == user}
        for those, most in ((own, MOST_NAMES_OF_USER), (named, MOST_NAMES)):
            if len(those) < most:
                continue
            idle = next((key for key, each in those.items() if not each.pipes), None)
            if idle is None:
                raise _PipeError(f"{most} names have a pipe already")
            _end(self._spools.pop(idle).spool)
            return

    def _read(self, pipe: _Pipe) -> None:
        try:
            data = os.read(pipe.descriptor, INTAKE_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            _log.warning("a pipe of %s can no longer be read: %s", pipe.fifo or "a program", error)
            data = b""
        if not data:
            self._end(pipe)
            return
        records, pipe.partial = pipe.split(pipe.partial + data)
        self._write_records(pipe, records)

    def _write_records(self, pipe: _Pipe, records: list[bytes]) -> None:
        """Write records that are within the allowances. A gap is one LOST, however many reads it spans."""
        if pipe.last_marks:
            records = [*pipe.last_marks.values(), *records]
        if self._is_allowed(pipe, len(records) * RECORD_BYTES):
            pipe.last_marks.clear()
        elif pipe.split is _split_marks:
            _remember_last(pipe.last_marks, records)
            return
        else:
            records = [LOST]
        if pipe.ends_with_lost and records[:1] == [LOST]:
            records = records[1:]
        if records:
            pipe.ends_with_lost = records[-1] == LOST
            self.torn_records += records.count(LOST)
        for begin in range(0, len(records), PIECE_RECORDS):
            self._write(pipe.filled.spool, b"".join(records[begin : begin + PIECE_RECORDS]))

    def _is_allowed(self, pipe: _Pipe, size: int) -> bool:
        allowances, now_s = pipe.filled.allowances, self._now_s()
        # Taken from all allowances or from none: a refusal by one must not use up the others.
        if all(each.allows(size, now_s) for each in allowances):
            for each in allowances:
                each.take(size)
            return True
        if not pipe.filled.is_refused:
            pipe.filled.is_refused = True
            rate = f"{INTAKE_BYTES_PER_S >> 20} MB a second"
            _log.warning("a program writes to %s faster than %s: the excess is lost", pipe.fifo or "its pipe", rate)
        self.lost_bytes += size
        self._rest_s = LONG_REST_S
        return False

    def _write(self, spool: Spool, data: bytes) -> None:
        try:
            spool.write(data)
        except OSError as error:
            if not self.lost_bytes:
                _log.warning("the records that programs write are lost: %s", error)
            self.lost_bytes += len(data)

    def _end(self, pipe: _Pipe) -> None:
        for record in pipe.last_marks.values():  # few records, which show how many marks are missing
            self._write(pipe.filled.spool, record)
        pipe.last_marks.clear()
        if pipe.partial:
            self._write_records(pipe, [LOST])
            _log.info("a program ended in the middle of a record: its %d bytes are dropped", len(pipe.partial))
        self._selector.unregister(pipe.descriptor)
        if pipe.fifo is not None and self._thread.is_alive() and not self._is_stopping:
            # The FIFO is opened before the old end is closed: without any reader a new writer's bytes would be lost.
            try:
                self._open(pipe.fifo)
            except OSError as error:
                _log.warning("%s is not read until it can be opened again: %s", pipe.fifo.path, error)
                self._unopened.append(pipe.fifo)
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
        self._connections.append(connection)
        # The oldest gives way: a user who only connects must not keep others out.
        if len(self._connections) > MOST_WAITING:
            self._close_connection(self._connections[0])
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(connection))

    def _receive(self, connection: socket.socket) -> None:
        if connection not in self._connections:
            return  # the connection was closed in this very round, for want of room
        # Received descriptors belong to this function, whatever happens: a leak would use up the daemon's limit.
        descriptors: list[int] = []
        try:
            message, descriptors, _, _ = socket.recv_fds(connection, 256, 4)
            self._add_passed_pipe(message, descriptors, _user_of(connection))
            answer = "ok"
        except (_PipeError, OSError) as error:
            answer = str(error)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            connection.send(answer.encode())
        self._close_connection(connection)

    def _close_connection(self, connection: socket.socket) -> None:
        self._connections.remove(connection)
        self._selector.unregister(connection)
        connection.close()

    def _add_passed_pipe(self, message: bytes, descriptors: list[int], user: int) -> None:
        """Read a passed pipe from now on. Raises _PipeError and OSError."""
        name = message.decode("utf-8", "replace")
        if not is_valid_name(name):
            raise _PipeError("the name has letters, digits, `_` and `.` alone, 64 at most")
        if len(descriptors) != 1 or not self._is_read_end(descriptors[0]):
            raise _PipeError("one read end of a pipe is wanted")
        if len(self._passed) >= MOST_PASSED:
            raise _PipeError(f"{MOST_PASSED} pipes were passed already")
        if sum(pipe.user == user for pipe in self._passed) >= MOST_PASSED_OF_USER:
            raise _PipeError(f"{MOST_PASSED_OF_USER} pipes were passed by this user already")
        # Opened anew: the flags of a passed descriptor are shared with its giver, who could make a read of it block.
        descriptor = os.open(f"/proc/self/fd/{descriptors[0]}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            pipe = _Pipe(descriptor, self._spool_for("ops", name, user), None, user)
            self._add(pipe)
        except BaseException:
            os.close(descriptor)
            raise
        self._passed.append(pipe)

    def _is_read_end(self, descriptor: int) -> bool:
        """Return True for the read end of an anonymous pipe: not an O_PATH descriptor, and no FIFO of a file system.

        All anonymous pipes of a kernel are on one device, that of this daemon's own pipe.
        """
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        status = os.fstat(descriptor)
        is_pipe = stat.S_ISFIFO(status.st_mode) and status.st_dev == os.fstat(self._wake).st_dev
        return is_pipe and not flags & os.O_PATH and flags & os.O_ACCMODE == os.O_RDONLY


def _user_of(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    user: int = _PEER.unpack(credentials)[1]
    return user


def _end(spool: Spool) -> None:
    try:
        spool.close()
    except OSError as error:
        _log.warning("cannot write the end of a spool: %s", error)


def _remember_last(last_marks: dict[bytes, bytes], records: Iterable[bytes]) -> None:
    for record in records:
        writer = record[8:12] + record[46:48]  # process, and writer in it
        if record != LOST and (writer in last_marks or len(last_marks) < REMEMBERED_WRITERS):
            last_marks[writer] = record


def _split_descriptors(data: bytes) -> tuple[list[bytes], bytes]:
    complete_bytes = len(data) - len(data) % RECORD_BYTES
    return [data[begin : begin + RECORD_BYTES] for begin in range(0, complete_bytes, RECORD_BYTES)], data[
        complete_bytes:
    ]


def _split_marks(data: bytes) -> tuple[list[bytes], bytes]:
    """Return whole records with LOST for each gap, and the beginning of one. A record extends from header to header."""
    records: list[bytes] = []
    end = 0  # of the last record
    for begin in _marks_in(data):
        records += [LOST] * (begin > end) + [data[begin : begin + RECORD_BYTES]]
        end = begin + RECORD_BYTES
    begun = _MARK.search(data, end) or _MARK_BEGINS.search(data, end)
    rest = len(data) if begun is None else begun.start()
    return records + [LOST] * (rest > end), data[rest:]


def _marks_in(data: bytes) -> Iterator[int]:
    """Yield the offsets of whole records.

    Bytes that look like a header inside a record may be its text, so they count only if no header follows the record.
    """
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
    """Return a descriptor that holds the directory's lock: two readers of one FIFO would each get half of the bytes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OSError(errno.EBUSY, "another profagentd takes in what programs write", path) from None
    return descriptor


def _make_fifo(path: str) -> None:
    """Make a FIFO that every program may write to, and only the daemon's user may read."""
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
