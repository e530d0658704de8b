"""Decoding of a JOB of which only some inferences are kept: what is passed over on purpose gets no rows.

By its step, a log is kept or passed over from its name alone. By time, that is known when the `.done` of the
inference's aicore log has come; until then its logs have no rows, and when the JOB ends without one they are kept.
Either way the choice follows from the files, so that a restart chooses the same. What was kept stays kept: where a
model is loaded again, the `.done` of its inference is another one, and the log has both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from profagent.errors import FormatError
from profagent.formats.done import parse_done
from profagent.formats.names import LogKind, parse_log_name
from profagent.formats.schedule import ByTime, step_of
from profagent.ingest.changes import Chosen, ContentLedger, LogAdvanced, LogReset
from profagent.ingest.joins import JobFiles, small_file
from profagent.ingest.states import DONE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from profagent.formats.names import LogName
    from profagent.formats.schedule import Keeping
    from profagent.ingest.changes import Change
    from profagent.ingest.decode import JobDecoder

# Both generations of names, as they come with each other (format page 2.1).
_AICORE, _AICPU, _CONT = ("aicore", "AAcore"), ("aicpu", "AAcpu"), "cont"


class ChosenFiles(JobFiles, Protocol):
    """Those of a JOB of which some are kept."""

    def earlier(self, path: str) -> bytes | None:
        """The `.done` that kept an inference before another took its place; None where there was none."""


class ChoosingDecoder:
    """The interface of a JobDecoder, and who is kept."""

    def __init__(
        self, files: ChosenFiles, keeping: Keeping, interval: int | None, decoder: Callable[[JobFiles], JobDecoder]
    ) -> None:
        """`interval` is the board's, None where it is not known; `decoder` makes the one of what is kept."""
        self._files = files
        self._keeping = keeping
        self._interval = interval
        self._decoder = decoder(self)

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """The files, for the decoder of what is kept."""
        return self._files.read(path, size, start=start)

    def names(self) -> list[str]:
        """Paths of those that are kept."""
        return [path for path in self._files.names() if self.keeps(path)]

    def keeps(self, path: str) -> bool | None:
        """Whether a log is kept; None while that is not known."""
        name = parse_log_name(path)
        if name is None or name.inference is None:
            return True
        if not isinstance(self._keeping, ByTime):
            return self._keeping.keeps(step_of(name.inference, self._interval))
        done_path = _aicore_path(path, name) + DONE_SUFFIX
        done = small_file(self._files, done_path)
        return None if done is None else self._keeps_time(done, done_path)

    def keeps_by_time(self, path: str) -> bool:
        """Whether a log is kept by the time of its inference."""
        name = parse_log_name(path)
        is_timed = isinstance(self._keeping, ByTime) and name is not None and name.inference is not None
        return is_timed and self.keeps(path) is True

    def tells_time(self, path: str) -> bool:
        """Whether the choice hangs on this file."""
        name = parse_log_name(path)
        is_done = name is not None and name.is_done and name.kind is LogKind.AICORE
        return is_done and isinstance(self._keeping, ByTime)

    def told_kept_time(self, path: str) -> bool:
        """Whether this file, as it stands, is the `.done` of an inference that is kept by what it tells."""
        done = small_file(self._files, path) if self.tells_time(path) else None
        return done is not None and self._is_kept_at(_start_us(done, path))

    def others(self, path: str) -> list[str]:
        """Paths that the logs of an aicore log's inference can have, but for its `.done`."""
        data = path.removesuffix(DONE_SUFFIX)
        name = parse_log_name(data)
        assert name is not None, "a .done is named after its data"
        folder, _, file = data.rpartition("/")
        prefix, _, rest = file.partition(".")
        aicpu = f"{folder}/{_AICPU[prefix.lower() == _AICORE[1].lower()]}.{rest}"
        cont = f"{folder}/{_CONT}.{_without_stream(name)}"
        return [data, aicpu, aicpu + DONE_SUFFIX, cont]

    def begin_stream(self) -> None:
        """A stream begins."""
        self._decoder.begin_stream()

    def expect(self, paths: Iterable[str]) -> None:
        """The board announces logs that are not held whole."""
        self._decoder.expect(paths)

    def confirm(self, path: str) -> Iterator[Change]:
        """A small file is as it was held."""
        if self.keeps(path):
            yield from self._decoder.confirm(path)

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        """A data log goes on from `offset`."""
        keeps = self.keeps(path)
        if keeps:
            if offset == 0:
                yield from self._wanted(path)
            yield from self._decoder.begin(path, generation, offset)
            return
        if offset == 0:
            yield LogReset(path)
        if self._decoder.is_announced(path):
            yield ContentLedger(path + DONE_SUFFIX, ())
        yield from self._without_rows(path, keeps)
        yield LogAdvanced(path, generation, offset)

    def read_ahead(self, beginnings: Iterable[tuple[str, bytes]]) -> None:
        """First bytes of data logs that are about to come; of those that are not kept nothing is read."""
        self._decoder.read_ahead((path, data) for path, data in beginnings if self.keeps(path))

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        """Bytes of a data log at `offset`."""
        keeps = self.keeps(path)
        if keeps:
            yield from self._decoder.append(path, generation, offset, data)
            return
        yield from self._without_rows(path, keeps)
        yield LogAdvanced(path, generation, offset + len(data))

    def complete(self, path: str, generation: int, offset: int, digest: bytes | None) -> Iterator[Change]:
        """The board vouches for a data log."""
        keeps = self.keeps(path)
        if keeps:
            yield from self._decoder.complete(path, generation, offset, digest)
            return
        yield from self._without_rows(path, keeps)
        yield LogAdvanced(path, generation, offset, complete=True, digest=digest)

    def snapshot(
        self, path: str, generation: int, data: bytes, digest: bytes, *, size: int | None = None
    ) -> Iterator[Change]:
        """A file that came whole. Raises UnsupportedBoardError."""
        if self.tells_time(path):
            yield from self._choose(path, data)
        keeps = self.keeps(path)
        if keeps:
            yield from self._wanted(path)
            yield from self._decoder.snapshot(path, generation, data, digest, size=size)
            if self.tells_time(path):
                yield from self._release(path)
            return
        yield from self._without_rows(path, keeps)
        yield LogAdvanced(path, generation, len(data) if size is None else size, complete=True, digest=digest)

    def end(self, unsettled: Iterable[str], orphans: Iterable[str]) -> Iterator[Change]:
        """The JOB has ended: what never came to be chosen is kept, until its time comes after all.

        `unsettled` holds every log of an inference whose time is not known: what was decoded at an earlier end may
        have grown since, or its model's tables have come.
        """
        left = [path for path in unsettled if self.keeps(path) is not False]
        alone = [path for path in orphans if self.keeps(path) is not False]
        for path in (*left, *alone):
            if self.keeps(path) is None:
                data = path.removesuffix(DONE_SUFFIX)
                self._decoder.forget(data)
                yield from self._note_done(data + DONE_SUFFIX)
        yield from self._decoder.end(left, alone)

    def _without_rows(self, path: str, keeps: bool | None) -> Iterator[Change]:
        """A file that gets none, or not yet."""
        self._decoder.forget(path.removesuffix(DONE_SUFFIX))
        if keeps is False:
            yield Chosen(path, kept=False)

    def _wanted(self, path: str) -> Iterator[Change]:
        """A file that is kept; it may have been passed over, and dropped, by an earlier time of its inference."""
        if self.keeps_by_time(path):
            yield Chosen(path, kept=True)

    def _keeps_time(self, done: bytes, done_path: str) -> bool:
        """By when the inference began, or one before it in the same file; one that does not tell is kept."""
        start_us = _start_us(done, done_path)
        if not start_us or self._is_kept_at(start_us):
            return True
        earlier = self._files.earlier(done_path)
        return earlier is not None and self._is_kept_at(_start_us(earlier, done_path))

    def _is_kept_at(self, start_us: int) -> bool:
        assert isinstance(self._keeping, ByTime), "else nobody asks"
        return bool(start_us) and self._keeping.keeps(start_us)

    def _choose(self, path: str, data: bytes) -> Iterator[Change]:
        """The time of an inference has come: its logs that are there are kept or passed over."""
        kept = self._keeps_time(data, path)
        for other in self.others(path):
            if self._files.read(other, 0) is not None:
                self._decoder.forget(other)
                yield Chosen(other, kept)
        # One that said otherwise before was passed over itself.
        yield Chosen(path, kept)

    def _release(self, path: str) -> Iterator[Change]:
        """The rows of an inference's aicpu log, which waited for its time; those of its aicore log came with that."""
        _, aicpu, aicpu_done, _ = self.others(path)
        yield from self._note_done(aicpu_done)
        if self._files.read(aicpu, 0) is not None:
            yield from self._decoder.decode_again(aicpu)

    def _note_done(self, path: str) -> Iterator[Change]:
        """What is odd about a `.done` that waited for the choice."""
        if self._files.read(path, 0) is not None:
            yield self._decoder.remark_done(path)


def _start_us(done: bytes, path: str) -> int:
    """When an inference began; 0 where its `.done` does not tell."""
    try:
        return parse_done(done, LogKind.AICORE, path).start_us
    except FormatError:
        return 0


def _aicore_path(path: str, name: LogName) -> str:
    """The aicore log of the inference that a log belongs to."""
    data = path.removesuffix(DONE_SUFFIX)
    if name.kind is LogKind.AICORE:
        return data
    folder, _, file = data.rpartition("/")
    prefix, _, rest = file.partition(".")
    return f"{folder}/{_AICORE[prefix.lower() == _AICPU[1].lower()]}.{rest}"


def _without_stream(name: LogName) -> str:
    numbers = (name.model_id, name.batch_num, name.input_pic_num, name.current_pic_count)
    return ".".join((str(name.device), name.model or "", *map(str, numbers)))
