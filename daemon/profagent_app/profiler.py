"""`Profiler` with MindSpore's interface, over the SS928's runtime.

The rules are those of MindSpore's `Profiler`: actions, transitions, warnings and defaults. What the SS928 cannot do is
logged once, as a warning of the logger `profagent_app`. Two things differ. The runtime records only models that are
loaded after `prof_init`. So `prof_init` is called once, when the Profiler starts, whatever the first step's action is.
And the analysis is made on the host: `profagent import`.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import json
import logging
import os
import shutil
import socket
import subprocess
import time
import weakref
from types import TracebackType
from typing import Any, Callable, TypeVar, cast

from profagent_app import marks
from profagent_app.acl.binding import runtime as process_runtime
from profagent_app.marks import Kind
from profagent_app.parameters import (
    AicoreMetrics,
    ProfilerActivity,
    ProfilerLevel,
    check_arguments,
    data_types,
    to_json,
    warn_once,
)
from profagent_app.runtime import Mode, Runtime
from profagent_app.schedule import TRANSITIONS, ProfilerAction, checked_schedule, every_step, schedule

__all__ = [  # under the names that the page imports from mindspore.profiler
    "AicoreMetrics",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "schedule",
    "tensor_board_trace_handler",
    "tensorboard_trace_handler",
]

MAX_METADATA_BYTES = 100 * 1024 * 1024
LONGEST_WORKER_NAME = 225

_log = logging.getLogger("profagent_app")
_F = TypeVar("_F", bound=Callable[..., None])


def _logged(method: _F) -> _F:
    """Log exceptions of a method instead of raising them: a profiler must not end the program."""

    @functools.wraps(method)
    def guarded(*arguments: Any, **named: Any) -> None:
        try:
            method(*arguments, **named)
        except Exception as error:  # noqa: BLE001
            _log.error("Profiler %s failed: %s", method.__name__, error)

    return cast("_F", guarded)


class Collection:
    """One run of the runtime's profiling below `<output_path>/<worker>_<pid>_<time>_ascend_ms`.

    Its files are written as soon as their content is known, since a program may end by a signal.
    """

    def __init__(self, parameters: dict[str, Any], runtime: Runtime) -> None:
        self._parameters, self._runtime = parameters, runtime
        self._config = 0  # address of the profiling configuration while there is a JOB, else 0
        self._metadata: dict[str, Any] = {}  # content of profiler_metadata.json
        self.directory = ""  # of the newest JOB
        self._is_ready = False  # `init` was called in this cycle
        handler = parameters["on_trace_ready"]
        self._arguments = (self,) if handler is not None and _takes_argument(handler) else ()

    @property
    def is_open(self) -> bool:
        """True while there is a JOB."""
        return self._config != 0

    def open_job(self) -> None:
        """Make the directory and the JOB, unless there is one. Models have to be loaded after this."""
        if self.is_open:
            return
        # The configuration comes first: where it is refused, no JOB is open that would make the next Profiler fail.
        config = self._runtime.create_config(data_types(self._parameters))
        directory = self._new_directory()
        metadata = {} if self.directory else self._metadata  # entries of an earlier JOB stay beside that one
        try:
            # The folder that MindSpore's own Profiler makes for its results.
            os.mkdir(os.path.join(directory, "ASCEND_PROFILER_OUTPUT"), mode=0o750)
            _write(directory, "profiler_info_0.json", {"profiler_parameters": to_json(self._parameters)})
            if metadata:
                _write(directory, "profiler_metadata.json", metadata)
            self._runtime.prof_init(directory)
        except Exception:
            self._runtime.destroy_config(config)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.directory, self._metadata, self._config = directory, metadata, config

    def _new_directory(self) -> str:
        handler = self._parameters["on_trace_ready"]
        output = getattr(handler, "dir_name", None) or self._parameters["output_path"]
        worker = getattr(handler, "worker_name", None) or socket.gethostname()
        now_ms = time.time_ns() // 1_000_000
        while True:
            # Milliseconds in the name keep the directories of one process apart.
            stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
            directory = os.path.join(os.path.realpath(output), f"{worker}_{os.getpid()}_{stamp}_ascend_ms")
            try:
                os.makedirs(directory, mode=0o750)
            except FileExistsError:  # another JOB has this millisecond
                now_ms += 1
            else:
                return directory

    def close_job(self) -> None:
        """End the JOB and free its configuration."""
        config, self._config = self._config, 0
        if config:
            if self._runtime.mode is not Mode.OFF:  # acl.finalize may have ended the JOB already
                self._runtime.prof_finalize()
            self._runtime.destroy_config(config)

    def init(self) -> None:
        """Prepare a cycle, which `start` requires."""
        self._is_ready = True

    def start(self) -> None:
        """Let the runtime begin to record."""
        if not self._is_ready:
            _log.error("ProfilerInterface start failed, profiler has not been initialized.")
            return
        self._runtime.prof_start(self._config)

    def stop(self) -> None:
        """Let the runtime stop recording, if it does record."""
        if self.is_open and self._runtime.mode is Mode.STARTED:
            self._runtime.prof_stop(self._config)

    def finalize(self) -> None:
        """End a cycle; the next one needs `init`."""
        self._is_ready = False

    def add_metadata(self, key: str, value: Any) -> bool:
        """Add an entry to `profiler_metadata.json`; return False if its size would exceed MAX_METADATA_BYTES."""
        metadata = {**self._metadata, key: value}
        if len(json.dumps(metadata)) > MAX_METADATA_BYTES:
            return False
        self._metadata = metadata
        if self.directory:
            _write(self.directory, "profiler_metadata.json", metadata)
        return True

    def trace_ready(self) -> None:
        """Call the user's handler."""
        handler = self._parameters["on_trace_ready"]
        if handler is not None:
            handler(*self._arguments)

    def clear(self) -> None:
        """Do nothing, since no data is held between cycles."""

    def delete_dir(self) -> None:
        """Log that there is nothing to parse. MindSpore deletes nothing here either."""
        _log.warning("%s has no data that can be parsed", self.directory)


def _write(directory: str, name: str, content: dict[str, Any]) -> None:
    path = os.path.join(directory, name)
    # Written beside the file and renamed, so that no reader finds a part of it.
    with open(os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=4)
    os.replace(f"{path}.part", path)  # a crash before this leaves the earlier entries


class Profiler:
    """Profiler of this process: `Profiler()` starts, `stop()` ends, `analyse()` makes the results where it can.

    Arguments are given by name and listed in `DEFAULTS`; an unknown one raises TypeError. Inside `with` it is started
    and stopped. With a `schedule`, call `step()` after each step. Problems are logged, not raised, as MindSpore does.
    """

    def __init__(self, *, runtime: Runtime | None = None, **arguments: Any) -> None:
        self._parameters = check_arguments(arguments)
        self._has_schedule = self._parameters["schedule"] is not None
        self._schedule = checked_schedule(self._parameters["schedule"]) if self._has_schedule else every_step
        self._has_started = False  # between `start` and `stop`
        self._never_stepped = self._has_schedule  # `stop` then refuses, as MindSpore's does
        self._step_began_ns = 0  # wall clock
        self.step_num = 0  # the present step
        # The action of the present step; its transition to the next one decides what is called.
        self.current_action: ProfilerAction = self._schedule(0)
        # None where the runtime refuses: every call then does nothing, and the program goes on unprofiled.
        self._collection: Collection | None = None
        try:
            self._collection = Collection(self._parameters, runtime or process_runtime())
            self._collection.open_job()
        except Exception as error:  # noqa: BLE001 - a profiler must not end the program
            _log.error("the profiler cannot collect: %s", error)
            self._collection = None
        self._pid = os.getpid()  # a forked child must not end its parent's profiler
        _end_at_exit(self)
        if self._parameters["start_profile"]:
            self.start()

    @_logged
    def start(self) -> None:
        """Start collecting, with the action of the first step."""
        if self._has_started:
            _log.warning("The profiler has already started. Do not turn on again in the open state.")
            return
        # Set even if the work below fails: that is logged, and `stop` then ends what did begin.
        self._has_started = True
        self._do(("open_job",))  # does nothing unless `stop` has closed the JOB
        self._transit(ProfilerAction.NONE, self.current_action)
        self._step_began_ns = time.time_ns()

    @_logged
    def step(self) -> None:
        """End a step and begin the next one. Needs a schedule."""
        if not self._has_schedule:
            _log.error("With no schedule in the Profiler, step takes no effect!")
            return
        if not self._has_started:
            _log.error("Profiler is stopped, step takes no effect!")
            return
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self._schedule(self.step_num)
        self._transit(before, self.current_action)
        self._never_stepped = False

    @_logged
    def stop(self) -> None:
        """Stop collecting and end the JOB."""
        if self._never_stepped:
            _log.warning("The profiler has schedule. Please use step() to collect data.")
            return
        if not self._has_started:
            _log.error("The profiler has not started. Do not turn off again in the closed state.")
            return
        self._has_started = False
        if self._has_schedule:
            self._end_step()
            self._transit(self.current_action, None)
        else:
            self._do(("stop", "finalize"))
        self._do(("close_job",))

    @_logged
    def analyse(
        self,
        offline_path: str | None = None,
        pretty: bool = False,
        step_list: list[int] | None = None,
        mode: str = "sync",
    ) -> None:
        """Stop, and import the results where `profagent` is installed (Python 3.11); else log how to do that."""
        if mode not in {"sync", "async"}:
            _log.warning('analyse: mode must be "sync" or "async", not %r: "sync" is used', mode)
        if offline_path is not None:
            self.offline_analyse(offline_path, pretty, step_list)
            return
        _warn_of_no_effect(pretty=pretty, step_list=step_list)
        if self._has_schedule:
            if self._has_started:
                self._has_started = self._never_stepped = False
                self._end_step()
                self._do(("stop", "finalize", "close_job"))
            _log.warning("The profiler has schedule. Please use 'on_trace_ready' to analyse data.")
            return
        if self._has_started:
            self.stop()
        if self._collection is not None:
            _import(self._collection.directory, wait=mode != "async")

    @classmethod
    @_logged
    def offline_analyse(
        cls,
        path: str,
        pretty: bool = False,
        step_list: list[int] | None = None,
        data_simplification: bool = False,
    ) -> None:
        """Import every `*_ascend_ms` directory at or below `path`."""
        _warn_of_no_effect(pretty=pretty, step_list=step_list, data_simplification=data_simplification)
        found = _collections(os.path.realpath(path))
        if not found:
            _log.error(
                "Invalid path: %s. Expected a *_ascend_ms_* directory or a parent directory of multiple *_ascend_ms_*",
                os.path.realpath(path),
            )
        for each in found:
            _import(each, wait=True)

    @_logged
    def add_metadata(self, key: str, value: str) -> None:
        """Store a text beside the results."""
        self._add(key, value, value)

    @_logged
    def add_metadata_json(self, key: str, value: str) -> None:
        """Store a JSON text beside the results."""
        try:
            self._add(key, value, json.loads(value))
        except (TypeError, ValueError) as error:
            _log.warning("The metadata value must be a JSON text: %s", error)

    def _add(self, key: str, text: str, value: Any) -> None:
        if not all(isinstance(each, str) for each in (key, text)):
            _log.warning("The key and value of metadata must be string. Skip this metadata.")
        elif self._collection is not None and not self._collection.add_metadata(key, value):
            _log.warning("Too many metadata added. Skip this metadata.")

    def _transit(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        transition = TRANSITIONS.get((before, after))
        if transition is None:
            return
        if transition.warning:
            _log.warning(transition.warning)
        self._do(transition.steps)

    def _do(self, steps: tuple[str, ...]) -> None:
        if self._collection is None:
            return
        for step in steps:
            try:
                getattr(self._collection, step)()
            except Exception as error:  # noqa: BLE001 - later steps must still run
                _log.error("Profiler %s failed: %s", step, error)

    def _end_step(self) -> None:
        now = time.time_ns()
        marks.WRITER.write(Kind.STEP, b"ProfilerStep#%d" % self.step_num, self._step_began_ns, now)
        self._step_began_ns = now

    def __enter__(self) -> Profiler:  # noqa: PYI034 - Self needs Python 3.11
        if not self._has_started:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_started:
            self.stop()
        self._close()

    def __del__(self) -> None:
        self.end()

    def end(self) -> None:
        """Stop a profiler that was not stopped, when it is deleted or when the interpreter ends."""
        if getattr(self, "_pid", 0) != os.getpid():  # a forked child has copies of its parent's profilers
            return
        if self._has_started and self._collection is not None:
            self.stop()
            _log.warning("Profiler is stopped at the end of the program.")
        self._close()

    def _close(self) -> None:
        self._has_started = False
        if self._collection is not None and self._collection.is_open:  # `stop` was not called, or refused
            self._do(("stop", "close_job"))


_living: weakref.WeakSet[Profiler] = weakref.WeakSet()  # profilers to end at exit


def _end_at_exit(profiler: Profiler) -> None:
    # atexit calls the functions in reverse order. Registered anew, this one runs before an acl.finalize of the program.
    _living.add(profiler)
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def _end_all() -> None:
    for profiler in list(_living):
        profiler.end()


_NO_EFFECT = {
    "pretty": "the results are a database, `profagent export` writes files of it",
    "step_list": "all steps are imported, `profagent stats SESSION --by step` shows each",
    "data_simplification": "all recorded data is kept",
}


def _warn_of_no_effect(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None and value is not False:
            _log.warning("%s=%r has no effect: %s", name, value, _NO_EFFECT[name])


class tensorboard_trace_handler:  # noqa: N801 - MindSpore's name
    """`on_trace_ready` handler that puts results below `dir_name`, and imports them where it can."""

    def __init__(
        self,
        dir_name: str | None = None,
        worker_name: str | None = None,
        analyse_flag: bool = True,
        async_mode: bool = False,
    ) -> None:
        # With a longer name the directory's name would exceed the file system's 255 bytes.
        is_name = isinstance(worker_name, str) and len(worker_name) <= LONGEST_WORKER_NAME
        if worker_name is not None and not is_name:
            _log.warning("worker_name must be a string of at most %d characters; it is left out", LONGEST_WORKER_NAME)
            worker_name = None
        if dir_name is not None and not isinstance(dir_name, (str, os.PathLike)):
            _log.warning("dir_name must be a path; it is left out")
            dir_name = None
        self.dir_name, self.worker_name = dir_name, worker_name
        self._is_wanted, self._is_async = analyse_flag, async_mode

    def __call__(self, collection: Collection) -> None:
        """Import the data collected so far."""
        if self._is_wanted:
            _import(collection.directory, wait=not self._is_async)


tensor_board_trace_handler = tensorboard_trace_handler  # the page has both spellings


def _takes_argument(handler: Callable[..., Any]) -> bool:
    """Return True if the handler takes the collection: MindSpore passes it since 2.10, and nothing before."""
    try:
        inspect.signature(handler).bind(None)
    except TypeError:
        return False
    except ValueError:  # a C function without a signature
        return True
    return True


def _collections(path: str) -> list[str]:
    if path.endswith("_ascend_ms") and os.path.isdir(path):
        return [path]
    try:
        return sorted(each.path for each in os.scandir(path) if each.is_dir() and each.name.endswith("_ascend_ms"))
    except OSError:
        return []


def _import(directory: str, *, wait: bool) -> None:
    command: str | None = shutil.which("profagent")
    jobs = [each for each in os.listdir(directory) if each.startswith("JOB")]
    if not jobs:
        _log.warning("there is no JOB in %s: nothing to import", directory)
        return
    if command is None:
        warn_once(f"the results are made on the host: profagent import -dir {directory}/JOB…")
        return
    for job in jobs:
        # Without `wait` the import runs beside the program, and may outlive it.
        process = subprocess.Popen([command, "import", "-dir", os.path.join(directory, job)])  # noqa: S603
        if wait and process.wait() not in {0, 4}:
            _log.error("profagent import of %s failed", job)
