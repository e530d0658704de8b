"""The runtime library `libsvp_acl.so`: its profiling and subscription functions, with their rules of order.

Signatures are those of the public headers `svp_acl_*.h`. The order is checked before a call is made. The rules are
those of the pyACL pages; the codes were observed with the public library.
"""

from __future__ import annotations

import ctypes
import enum
import fcntl
import os
import termios
from collections.abc import Container, Sequence
from typing import Any, NamedTuple, Union

from profagent_app.errors import CallError, LibraryError, OrderError

LIBRARY = "libsvp_acl.so"
# Directories of SDK images, not verified on boards. The loader's own path is tried first.
DIRECTORIES = ("/opt/lib", "/opt/lib/svp_npu", "/usr/lib", "/usr/lib64", "/usr/local/lib")
DESCRIPTOR_BYTES = 256
_NORMAL_PAGES = 2  # of SVP_ACL_MEM_MALLOC_NORMAL_ONLY
_LONGEST_BY_ACCESSOR = 31  # the accessors refuse a type or name of 32 bytes, which descriptors do carry

_P, _SIZE, _U32, _U64, _I32 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32
_DATA = (_P, _SIZE, _U32)
_RETURNS_CODE: dict[str, tuple[type, ...]] = {
    "svp_acl_init": (ctypes.c_char_p,),
    "svp_acl_finalize": (),
    "svp_acl_prof_init": (ctypes.c_char_p, _SIZE),
    "svp_acl_prof_start": (_P,),
    "svp_acl_prof_stop": (_P,),
    "svp_acl_prof_finalize": (),
    "svp_acl_prof_destroy_config": (_P,),
    "svp_acl_prof_model_subscribe": (_U32, _P),
    "svp_acl_prof_model_unsubscribe": (_U32,),
    "svp_acl_prof_destroy_subscribe_config": (_P,),
    "svp_acl_prof_get_op_desc_size": (_P,),
    "svp_acl_prof_get_op_num": (_P, _SIZE, _P),
    "svp_acl_prof_get_op_type_len": (*_DATA, _P),
    "svp_acl_prof_get_op_name_len": (*_DATA, _P),
    "svp_acl_prof_get_op_type": (*_DATA, ctypes.c_char_p, _SIZE),
    "svp_acl_prof_get_op_name": (*_DATA, ctypes.c_char_p, _SIZE),
    "svp_acl_mdl_load_from_mem": (_P, _SIZE, _P),
    "svp_acl_mdl_execute": (_U32, _P, _P),
    "svp_acl_mdl_execute_async": (_U32, _P, _P, _P),
    "svp_acl_mdl_unload": (_U32,),
    "svp_acl_mdl_get_desc": (_P, _U32),
    "svp_acl_mdl_destroy_desc": (_P,),
    "svp_acl_mdl_get_input_dims": (_P, _SIZE, _P),
    "svp_acl_mdl_get_output_dims": (_P, _SIZE, _P),
    "svp_acl_mdl_get_input_index_by_name": (_P, ctypes.c_char_p, _P),
    "svp_acl_mdl_get_output_index_by_name": (_P, ctypes.c_char_p, _P),
    "svp_acl_mdl_destroy_dataset": (_P,),
    "svp_acl_mdl_add_dataset_buffer": (_P, _P),
    "svp_acl_mdl_set_dynamic_batch_size": (_U32, _P, _SIZE, _U64),
    "svp_acl_destroy_data_buffer": (_P,),
    "svp_acl_update_data_buffer": (_P, _P, _SIZE, _SIZE),
    "svp_acl_rt_set_device": (_I32,),
    "svp_acl_rt_reset_device": (_I32,),
    "svp_acl_rt_get_device": (_P,),
    "svp_acl_rt_get_device_count": (_P,),
    "svp_acl_rt_get_run_mode": (_P,),
    "svp_acl_rt_synchronize_device": (),
    "svp_acl_rt_create_context": (_P, _I32),
    "svp_acl_rt_get_current_context": (_P,),
    "svp_acl_rt_set_current_context": (_P,),
    "svp_acl_rt_destroy_context": (_P,),
    "svp_acl_rt_create_stream": (_P,),
    "svp_acl_rt_synchronize_stream": (_P,),
    "svp_acl_rt_destroy_stream": (_P,),
    "svp_acl_rt_malloc": (_P, _SIZE, ctypes.c_int),
    "svp_acl_rt_malloc_cached": (_P, _SIZE, ctypes.c_int),
    "svp_acl_rt_mem_flush": (_P, _SIZE),
    "svp_acl_rt_mem_invalidate": (_P, _SIZE),
    "svp_acl_rt_free": (_P,),
    "svp_acl_rt_malloc_host": (_P, _SIZE),
    "svp_acl_rt_free_host": (_P,),
    "svp_acl_rt_set_op_wait_timeout": (_U32,),
}
_RETURNS_OTHER: dict[str, tuple[type, tuple[type, ...]]] = {
    "svp_acl_prof_create_config": (_P, (_P, _U32, ctypes.c_int, _P, _U64)),
    "svp_acl_prof_create_subscribe_config": (_P, (ctypes.c_int8, ctypes.c_int, _P)),
    "svp_acl_prof_get_op_start": (_U64, _DATA),
    "svp_acl_prof_get_op_end": (_U64, _DATA),
    "svp_acl_prof_get_op_duration": (_U64, _DATA),
    "svp_acl_prof_get_model_id": (_SIZE, _DATA),
    "svp_acl_mdl_create_desc": (_P, ()),
    "svp_acl_mdl_get_num_inputs": (_SIZE, (_P,)),
    "svp_acl_mdl_get_num_outputs": (_SIZE, (_P,)),
    "svp_acl_mdl_get_input_size_by_index": (_SIZE, (_P, _SIZE)),
    "svp_acl_mdl_get_output_size_by_index": (_SIZE, (_P, _SIZE)),
    "svp_acl_mdl_get_input_default_stride": (_SIZE, (_P, _SIZE)),
    "svp_acl_mdl_get_output_default_stride": (_SIZE, (_P, _SIZE)),
    "svp_acl_mdl_get_input_name_by_index": (ctypes.c_char_p, (_P, _SIZE)),
    "svp_acl_mdl_get_output_name_by_index": (ctypes.c_char_p, (_P, _SIZE)),
    "svp_acl_mdl_get_input_format": (ctypes.c_int, (_P, _SIZE)),
    "svp_acl_mdl_get_output_format": (ctypes.c_int, (_P, _SIZE)),
    "svp_acl_mdl_get_input_data_type": (ctypes.c_int, (_P, _SIZE)),
    "svp_acl_mdl_get_output_data_type": (ctypes.c_int, (_P, _SIZE)),
    "svp_acl_mdl_create_dataset": (_P, ()),
    "svp_acl_mdl_get_dataset_num_buffers": (_SIZE, (_P,)),
    "svp_acl_mdl_get_dataset_buffer": (_P, (_P, _SIZE)),
    "svp_acl_create_data_buffer": (_P, (_P, _SIZE, _SIZE)),
    "svp_acl_get_data_buffer_addr": (_P, (_P,)),
    "svp_acl_get_data_buffer_size": (_SIZE, (_P,)),
    "svp_acl_get_data_buffer_stride": (_SIZE, (_P,)),
}

Data = Union[bytes, int]  # descriptors: their bytes, or their address


class DataType(enum.IntFlag):
    """Data that `prof_start` records."""

    ACL_API = 0x1
    TASK_TIME = 0x2
    AICORE_METRICS = 0x4
    AICPU_TRACE = 0x8
    ALL = 0xF


class Mode(enum.Enum):
    """State of profiling in this process, as far as this binding was used."""

    OFF = "off"
    READY = "initialised"
    STARTED = "started"
    SUBSCRIBED = "subscribed"
    JSON = "by acl.json"


class _CallError(NamedTuple):
    code: int
    text: str


_NO_INIT = _CallError(100001, "call prof_init first")
_EXCLUDED = _CallError(148047, "profiling and subscription exclude each other: finish the one before the other")
_BY_FILE = "the acl.json has a `profiler` object: profiling is the file's, take the object out to use this call"
_OF_FILE = _CallError(148047, _BY_FILE)
_NOT_MADE = _CallError(100001, _BY_FILE)
_TWICE = _CallError(100002, "prof_init was called already: call prof_finalize, or stop the Profiler that runs, first")
_CALL_ERRORS = {
    ("svp_acl_prof_init", Mode.READY): _TWICE,
    ("svp_acl_prof_init", Mode.STARTED): _TWICE,
    ("svp_acl_prof_init", Mode.SUBSCRIBED): _EXCLUDED,
    ("svp_acl_prof_start", Mode.OFF): _NO_INIT,
    ("svp_acl_prof_start", Mode.SUBSCRIBED): _NO_INIT,
    ("svp_acl_prof_start", Mode.STARTED): _CallError(100042, "profiling is started: call prof_stop before"),
    ("svp_acl_prof_stop", Mode.OFF): _NO_INIT,
    ("svp_acl_prof_stop", Mode.SUBSCRIBED): _NO_INIT,
    ("svp_acl_prof_stop", Mode.READY): _CallError(100037, "profiling is not started: call prof_start before"),
    ("svp_acl_prof_finalize", Mode.OFF): _NO_INIT,
    ("svp_acl_prof_finalize", Mode.SUBSCRIBED): _NO_INIT,
    ("svp_acl_prof_finalize", Mode.STARTED): _CallError(500000, "profiling is started: call prof_stop before"),
    ("svp_acl_prof_model_subscribe", Mode.READY): _EXCLUDED,
    ("svp_acl_prof_model_subscribe", Mode.STARTED): _EXCLUDED,
    ("svp_acl_prof_init", Mode.JSON): _OF_FILE,
    ("svp_acl_prof_start", Mode.JSON): _NOT_MADE,
    ("svp_acl_prof_stop", Mode.JSON): _NOT_MADE,
    ("svp_acl_prof_finalize", Mode.JSON): _NOT_MADE,
    ("svp_acl_prof_model_subscribe", Mode.JSON): _OF_FILE,
    ("svp_acl_prof_get_*", Mode.READY): _EXCLUDED,
    ("svp_acl_prof_get_*", Mode.STARTED): _EXCLUDED,
}
_SAME_CONFIG = _CallError(100000, "give the configuration that profiling was started with, or one of the same values")
_NO_CONFIG = _CallError(100000, "there is no such configuration: it was destroyed already, or never made")
_AFTER_INIT = _CallError(100001, "call init (svp_acl_init) first")
_BEFORE_LOAD = _CallError(
    100000, "call prof_init before a model is loaded: no model that is loaded now would be recorded"
)
_UNLOADED = _CallError(100000, "the model is unloaded: load it first")
_SUBSCRIBED = _CallError(100000, "the model is subscribed already: unsubscribe it before")
_OTHER_PIPE = _CallError(100000, "all models are subscribed with one descriptor: unsubscribe those of the other before")
_NOT_SUBSCRIBED = _CallError(100001, "the model is not subscribed")
_IN_USE = _CallError(100000, "models are subscribed with this configuration: unsubscribe them before")


class Operator(NamedTuple):
    """Executed layer from a descriptor. Times are microseconds since 1970, by the board's clock."""

    model_id: int
    op_type: str
    op_name: str
    start_us: int
    end_us: int
    duration_us: int


def load(library: str | None = None) -> ctypes.CDLL:
    """Return the runtime library: `library`, `$PROFAGENT_SVP_ACL`, or that of an image. Raises LibraryError."""
    named = library or os.environ.get("PROFAGENT_SVP_ACL")
    tried = [named] if named else [LIBRARY, *(f"{directory}/{LIBRARY}" for directory in DIRECTORIES)]
    for path in tried:
        try:
            loaded = ctypes.CDLL(path)
        except OSError:
            continue
        for name, arguments in _RETURNS_CODE.items():
            _declare(path, loaded, name, ctypes.c_int, arguments)
        for name, (returned, arguments) in _RETURNS_OTHER.items():
            _declare(path, loaded, name, returned, arguments)
        return loaded
    raise LibraryError(f"no {LIBRARY} at {', '.join(tried)}: set PROFAGENT_SVP_ACL to its path")


def _declare(path: str, library: ctypes.CDLL, name: str, returned: type, arguments: tuple[type, ...]) -> None:
    try:
        function = getattr(library, name)
    except AttributeError:
        # The profiling functions distinguish this runtime from those of other chips.
        if name.startswith("svp_acl_prof"):
            raise LibraryError(f"{path} has no {name}: it is not the SS928's runtime") from None
        return  # a program that uses one of the others has a library with it
    function.restype, function.argtypes = returned, arguments


class Runtime:
    """The library, and the state that its rules of order need. Calls raise OrderError, CallError or LibraryError."""

    def __init__(self, library: str | None = None) -> None:
        self._library = load(library)
        self._initialized: bool | None = None  # None: the program may have called svp_acl_init by itself
        self._models: dict[int, bool] = {}  # by model id: it is still loaded
        self._subscribed: dict[int, int] = {}  # by model id: the subscription's configuration
        self._configs: dict[int, object] = {}  # by address: the values of each profiling configuration
        self._started: object = None  # values of the configuration that profiling was started with
        self._pipes: dict[int, int] = {}  # by address: the pipe of each subscription's configuration
        self._descriptor_numbers: dict[int, ctypes.c_int] = {}  # never freed: the library keeps pointers to them
        self._model_memory: dict[int, int] = {}  # by model id: device memory of models loaded as bytes
        self._without_stride: set[int] = set()  # data buffers that get their tensor's stride when executed
        self.mode = Mode.OFF  # the state that `_CALL_ERRORS` depends on

    def init(self, config_path: str | None = None) -> None:
        """Call `svp_acl_init`. With an acl.json that has a `profiler` object, that object controls profiling."""
        self.call("svp_acl_init", os.fsencode(config_path) if config_path is not None else None)
        self._initialized = True
        # Only the library knows which objects it accepts. It cannot make a JOB in /proc, so this call has no effect.
        if config_path is not None and self._library.svp_acl_prof_init(b"/proc", 5) == _OF_FILE.code:
            self.mode = Mode.JSON

    def finalize(self) -> None:
        """Call `svp_acl_finalize`, which ends profiling as well."""
        self.call("svp_acl_finalize")
        self._initialized, self.mode = False, Mode.OFF
        self._models.clear()
        self._subscribed.clear()

    def prof_init(self, result_path: str) -> None:
        """Make a JOB in the directory `result_path`; if that does not exist, the library takes the current one."""
        self._check("svp_acl_prof_init")
        _refuse_if(any(self._models.values()), "svp_acl_prof_init", _BEFORE_LOAD)
        path = os.fsencode(result_path)
        self.call("svp_acl_prof_init", path, len(path))
        self.mode = Mode.READY

    def prof_start(self, config: int) -> None:
        """Begin to record what `config` (of `create_config`) selects."""
        self._check("svp_acl_prof_start")
        _check_config("svp_acl_prof_start", config, self._configs)
        self.call("svp_acl_prof_start", config)
        self.mode, self._started = Mode.STARTED, self._configs[config]

    def prof_stop(self, config: int) -> None:
        """Stop recording; `config` has the values of the one that profiling was started with."""
        self._check("svp_acl_prof_stop")
        _check_config("svp_acl_prof_stop", config, self._configs)
        _refuse_if(self._started not in {None, self._configs[config]}, "svp_acl_prof_stop", _SAME_CONFIG)
        self.call("svp_acl_prof_stop", config)
        self.mode, self._started = Mode.READY, None

    def prof_finalize(self) -> None:
        """End the JOB that `prof_init` made."""
        self._check("svp_acl_prof_finalize")
        self.call("svp_acl_prof_finalize")
        self.mode = Mode.OFF

    def create_config(self, data_types: int = DataType.ALL, devices: Sequence[int] = (0,), metrics: int = 0) -> int:
        """Return the address of a profiling configuration. The SS928 accepts device 0 and metrics 0 only."""
        numbers = (ctypes.c_uint32 * len(devices))(*devices)
        config = self._library.svp_acl_prof_create_config(numbers, len(devices), metrics, None, data_types)
        address = self._checked_address("svp_acl_prof_create_config", config)
        self._configs[address] = (data_types, tuple(devices), metrics)
        return address

    def destroy_config(self, config: int) -> None:
        """Free a profiling configuration."""
        _check_config("svp_acl_prof_destroy_config", config, self._configs)
        self.call("svp_acl_prof_destroy_config", config)
        self._configs.pop(config)

    def create_subscribe_config(self, descriptor: int, *, time_info: bool = True) -> int:
        """Return the address of a subscription's configuration; `descriptor` is the pipe's write end."""
        # The library keeps the pointer for an unknown time, so the number is never freed.
        number = self._descriptor_numbers.setdefault(descriptor, ctypes.c_int(descriptor))
        config = self._library.svp_acl_prof_create_subscribe_config(time_info, 0, ctypes.byref(number))
        self._pipes[self._checked_address("svp_acl_prof_create_subscribe_config", config)] = descriptor
        return int(config)

    def destroy_subscribe_config(self, config: int) -> None:
        """Free a subscription's configuration. Its models have to be unsubscribed before."""
        function = "svp_acl_prof_destroy_subscribe_config"
        _check_config(function, config, self._pipes)
        _refuse_if(config in self._subscribed.values(), function, _IN_USE)
        self.call(function, config)
        self._pipes.pop(config)

    def subscribe(self, model_id: int, config: int) -> None:
        """Let the library write 256 bytes to the configuration's pipe for each layer that the model executes."""
        function = "svp_acl_prof_model_subscribe"
        self._check(function)
        _check_config(function, config, self._pipes)
        # The library writes all subscriptions of a process to one descriptor.
        in_use = {self._pipes[each] for each in self._subscribed.values()}
        _refuse_if(model_id in self._subscribed, function, _SUBSCRIBED)
        _refuse_if(bool(in_use - {self._pipes[config]}), function, _OTHER_PIPE)
        _refuse_if(self._models.get(model_id) is False, function, _UNLOADED)
        if self._initialized:
            self.mode = Mode.SUBSCRIBED  # a failed call puts the library in this mode as well
        self.call(function, model_id, config)
        self.mode = Mode.SUBSCRIBED
        self._subscribed[model_id] = config

    def unsubscribe(self, model_id: int) -> None:
        """End a model's subscription."""
        self._check("svp_acl_prof_model_unsubscribe")
        _refuse_if(model_id not in self._subscribed, "svp_acl_prof_model_unsubscribe", _NOT_SUBSCRIBED)
        self._subscribed.pop(model_id)  # a failed call ends the subscription as well
        self.call("svp_acl_prof_model_unsubscribe", model_id)
        # With its last subscription the process leaves the mode, so that profiling is possible again.
        if not self._subscribed:
            self.mode = Mode.OFF

    def op_desc_size(self) -> int:
        """Return the bytes of a descriptor."""
        self._check("svp_acl_prof_get_*")
        size: int = self.output("svp_acl_prof_get_op_desc_size", _SIZE(), 0)  # the library writes 32 bits
        return size

    def op_num(self, data: Data, size: int) -> int:
        """Return the number of whole descriptors in `size` bytes."""
        self._check("svp_acl_prof_get_*")
        number: int = self.output("svp_acl_prof_get_op_num", _U32(), 2, data, size)
        return number

    def op_text(self, kind: str, data: Data, size: int, index: int) -> str:
        """Return the `type` or `name` of a descriptor's layer, without a NUL that models may append."""
        length = self.op_text_length(kind, data, size, index)
        if length > _LONGEST_BY_ACCESSOR:
            return _text_of(data, index, kind, length)
        into = ctypes.create_string_buffer(length + 1)
        self.call(f"svp_acl_prof_get_op_{kind}", data, size, index, into, max(length, 1))
        return into.raw[:length].rstrip(b"\0").decode(errors="replace")

    def op_text_length(self, kind: str, data: Data, size: int, index: int) -> int:
        """Return the bytes of the `type` or `name`."""
        self._check("svp_acl_prof_get_*")
        length: int = self.output(f"svp_acl_prof_get_op_{kind}_len", _SIZE(), 3, data, size, index)
        return length

    def op_number(self, kind: str, data: Data, size: int, index: int) -> int:
        """Return a descriptor's `op_start`, `op_end` or `op_duration` (µs), or its `model_id`."""
        # For a bad index the accessors return the code 100000 as if it were a number, so the index is checked here.
        if not 0 <= index < self.op_num(data, size):
            raise CallError(f"svp_acl_prof_get_{kind}", 100000)
        return int(self.answer(f"svp_acl_prof_get_{kind}", data, size, index))

    def operators(self, data: bytes) -> list[Operator]:
        """Return every whole descriptor in `data`."""
        size = len(data)
        return [
            Operator(
                self.op_number("model_id", data, size, index),
                self.op_text("type", data, size, index),
                self.op_text("name", data, size, index),
                self.op_number("op_start", data, size, index),
                self.op_number("op_end", data, size, index),
                self.op_number("op_duration", data, size, index),
            )
            for index in range(self.op_num(data, size))
        ]

    def has_unread(self) -> bool:
        """Return True if a subscription's pipe holds bytes that were not read yet."""
        return any(_unread_bytes(descriptor) for descriptor in self._pipes.values())

    def load_model(self, model: bytes) -> int:
        """Load a model from bytes, which are copied to device memory until it is unloaded; return its id."""
        # Device memory, as the library reads the model from it until the unload.
        address = self.output("svp_acl_rt_malloc", _P(), 0, len(model), _NORMAL_PAGES)
        ctypes.memmove(address, model, len(model))
        try:
            model_id = self.load_from_address(address, len(model))
        except CallError:
            self.call("svp_acl_rt_free", address)
            raise
        self._model_memory[model_id] = address
        return model_id

    def load_from_address(self, address: int, size: int) -> int:
        """Load a model from memory that the program keeps until it is unloaded; return its id."""
        model_id: int = self.output("svp_acl_mdl_load_from_mem", _U32(), 2, address, size)
        self._models[model_id] = True
        return model_id

    def execute(self, model_id: int, inputs: int, outputs: int) -> None:
        """Run a loaded model with the datasets at two addresses."""
        self._set_missing_strides(model_id, inputs, outputs)
        self.call("svp_acl_mdl_execute", model_id, inputs, outputs)

    def execute_async(self, model_id: int, inputs: int, outputs: int, stream: int) -> None:
        """Run a loaded model in a stream."""
        self._set_missing_strides(model_id, inputs, outputs)
        self.call("svp_acl_mdl_execute_async", model_id, inputs, outputs, stream)

    def unload_model(self, model_id: int) -> None:
        """Unload a model, and free its memory if it was loaded from bytes."""
        self.call("svp_acl_mdl_unload", model_id)
        self._models[model_id] = False
        address = self._model_memory.pop(model_id, None)
        if address is not None:
            self.call("svp_acl_rt_free", address)

    def create_data_buffer(self, data: int, size: int, stride: int | None = None) -> int:
        """Return the address of a data buffer that describes `size` bytes at `data`.

        `stride` is the number of bytes from one row to the next. pyACL has none: without it, the buffer gets the stride
        of the model's input or output when it is executed, by its place in the dataset.
        """
        function = "svp_acl_create_data_buffer"
        buffer = self._checked_address(function, self.answer(function, data, size, size if stride is None else stride))
        if stride is None:
            self._without_stride.add(buffer)
        return buffer

    def destroy_data_buffer(self, buffer: int) -> None:
        """Free a data buffer, but not its data."""
        self.call("svp_acl_destroy_data_buffer", buffer)
        self._without_stride.discard(buffer)

    def update_data_buffer(self, buffer: int, data: int, size: int, stride: int | None = None) -> None:
        """Change the data of a data buffer; without `stride` its stride stays."""
        present_stride = self.answer("svp_acl_get_data_buffer_stride", buffer) if stride is None else stride
        self.call("svp_acl_update_data_buffer", buffer, data, size, present_stride)
        if stride is not None:
            self._without_stride.discard(buffer)

    def _set_missing_strides(self, model_id: int, inputs: int, outputs: int) -> None:
        if not self._without_stride:
            return
        # A description for each execution that needs one: only the first one of a buffer does.
        model = self._checked_address("svp_acl_mdl_create_desc", self.answer("svp_acl_mdl_create_desc"))
        try:
            self.call("svp_acl_mdl_get_desc", model, model_id)
            for kind, dataset in (("input", inputs), ("output", outputs)):
                for index in range(self.answer("svp_acl_mdl_get_dataset_num_buffers", dataset) if dataset else 0):
                    buffer = self.answer("svp_acl_mdl_get_dataset_buffer", dataset, index)
                    stride = self.answer(f"svp_acl_mdl_get_{kind}_default_stride", model, index)
                    if stride and buffer in self._without_stride:
                        data = self.answer("svp_acl_get_data_buffer_addr", buffer)
                        size = self.answer("svp_acl_get_data_buffer_size", buffer)
                        self.update_data_buffer(buffer, data, size, stride)
        finally:
            self.call("svp_acl_mdl_destroy_desc", model)

    def _check(self, function: str) -> None:
        rule = _CALL_ERRORS.get((function, self.mode))
        if self._initialized is False and not function.endswith("*"):
            rule = _AFTER_INIT
        if rule is not None:
            raise OrderError(function, rule.text, rule.code)

    def call(self, function: str, *arguments: object) -> None:
        """Call any function of the library that returns a code. Raises CallError."""
        code = self.answer(function, *arguments)
        if code != 0:
            raise CallError(function, code)

    def output(self, function: str, output: Any, place: int, *arguments: object) -> Any:
        """Call a function that writes a value to its argument at `place`; return it.

        `output` is an object of its type.
        """
        self.call(function, *arguments[:place], ctypes.byref(output), *arguments[place:])
        return output.value or 0

    def answer(self, function: str, *arguments: object) -> Any:
        """Call any function of the library; return its value. Raises LibraryError where the library lacks it."""
        try:
            found = getattr(self._library, function)
        except AttributeError:
            path = self._library._name  # noqa: SLF001 - ctypes has no public name for it
            raise LibraryError(f"{path} has no {function}: this runtime cannot do it") from None
        return found(*arguments)

    @staticmethod
    def _checked_address(function: str, address: int | None) -> int:
        if not address:
            raise CallError(function, 100000)
        return address


def _check_config(function: str, config: int, living: Container[int]) -> None:
    """Raise OrderError for an unknown configuration: the library would free, or follow, any address."""
    _refuse_if(config not in living, function, _NO_CONFIG)


def _refuse_if(is_wrong: bool, function: str, rule: _CallError) -> None:
    if is_wrong:
        raise OrderError(function, rule.text, rule.code)


def _unread_bytes(descriptor: int) -> int:
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), "little")
    except OSError:  # closed, or not a pipe
        return 0


def _text_of(data: Data, index: int, kind: str, length: int) -> str:
    start = index * DESCRIPTOR_BYTES + (0xB8 if kind == "type" else 0xD8)
    raw = data[start : start + min(length, 32)] if isinstance(data, bytes) else ctypes.string_at(data + start, 32)
    return raw.rstrip(b"\0").decode(errors="replace")
