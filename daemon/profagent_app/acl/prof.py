"""`acl.prof`: profiling, subscription and stamps."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from profagent_app.acl.binding import code_of, refusing, runtime, value_of
from profagent_app.runtime import Mode
from profagent_app.stamps import FAILED, Stamps

if TYPE_CHECKING:
    from profagent_app.runtime import Data

UNSUPPORTED = 148049  # the runtime's own code for an unsupported function

_log = logging.getLogger("profagent_app")
# pyACL's stamps work between start and stop only.
stamps = Stamps(lambda: runtime().mode is Mode.STARTED)


def init(result_path: str) -> int:
    """Make a JOB below `result_path`, after acl.init and before a model is loaded; return a code."""
    return code_of(runtime().prof_init, result_path)


def start(config: int) -> int:
    """Begin to record; return a code."""
    return code_of(runtime().prof_start, config)


def stop(config: int) -> int:
    """Stop recording; return a code. Stamps do nothing after this."""
    return code_of(runtime().prof_stop, config)


def finalize() -> int:
    """End the JOB; return a code."""
    return code_of(runtime().prof_finalize)


def create_config(device_list: Sequence[int], aic_metrics: int, aic_events: Any, data_type_config: int) -> int:
    """Return the address of a configuration, 0 when it is refused. `aic_events` must be 0 or None: there are none."""
    if aic_events:
        _log.warning("create_config: aic_events must be 0 or None, not %r: there are none", aic_events)
        return 0
    return value_of(0, runtime().create_config, data_type_config, device_list, aic_metrics)[0]


def set_config(config_type: int, value: str) -> int:
    """Refuse with a code: the SS928's runtime records nothing that this function sets."""
    why = "the SS928's runtime has no svp_acl_prof_set_config; the daemon measures the system"
    _log.warning("set_config(%r, %r): %s (docs/howto/system-metrics.md)", config_type, value, why)
    return UNSUPPORTED


def destroy_config(config: int) -> int:
    """Free a profiling configuration; return a code."""
    return code_of(runtime().destroy_config, config)


def create_subscribe_config(time_info_switch: int, aic_metrics: int, fd: int) -> int:
    """Return the address of a subscription's configuration, 0 when it is refused.

    `fd` is the pipe's write end. The SS928's runtime has no metrics here: pyACL's value for none (0xFF) is passed to it
    as 0.
    """
    if aic_metrics not in (0, 0xFF) or time_info_switch not in (0, 1):
        _log.warning("create_subscribe_config: time_info_switch must be 0 or 1, aic_metrics 0xFF (none)")
        return 0
    runtime_ = runtime()
    return value_of(0, lambda: runtime_.create_subscribe_config(fd, time_info=bool(time_info_switch)))[0]


def destroy_subscribe_config(config: int) -> int:
    """Free a subscription's configuration; return a code."""
    return code_of(runtime().destroy_subscribe_config, config)


def model_subscribe(model_id: int, config: int) -> int:
    """Let the library write a descriptor for each layer that the model executes; return a code."""
    return code_of(runtime().subscribe, model_id, config)


def model_un_subscribe(model_id: int) -> int:
    """End a model's subscription; return a code."""
    return code_of(runtime().unsubscribe, model_id)


def get_op_desc_size() -> tuple[int, int]:
    """Return the bytes of a descriptor, and a code."""
    return value_of(0, runtime().op_desc_size)


def get_op_num(data: Data, data_len: int) -> tuple[int, int]:
    """Return the number of descriptors, and a code."""
    return value_of(0, runtime().op_num, data, data_len)


def get_op_type_len(data: Data, data_len: int, index: int) -> tuple[int, int]:
    """Return the bytes of the operator's type, and a code."""
    return value_of(0, runtime().op_text_length, "type", data, data_len, index)


def get_op_name_len(data: Data, data_len: int, index: int) -> tuple[int, int]:
    """Return the bytes of the operator's name, and a code."""
    return value_of(0, runtime().op_text_length, "name", data, data_len, index)


def get_op_type(data: Data, data_len: int, index: int, op_type_len: int) -> tuple[str, int]:
    """Return the operator's type, and a code: 500000 when it is longer than `op_type_len`."""
    return _fitting(op_type_len, get_op_type_v2(data, data_len, index))


def get_op_name(data: Data, data_len: int, index: int, op_name_len: int) -> tuple[str, int]:
    """Return the operator's name, and a code: 500000 when it is longer than `op_name_len`."""
    return _fitting(op_name_len, get_op_name_v2(data, data_len, index))


def get_op_type_v2(data: Data, data_len: int, index: int) -> tuple[str, int]:
    """Return the operator's type, and a code."""
    return value_of("", runtime().op_text, "type", data, data_len, index)


def get_op_name_v2(data: Data, data_len: int, index: int) -> tuple[str, int]:
    """Return the operator's name, and a code."""
    return value_of("", runtime().op_text, "name", data, data_len, index)


def get_op_start(data: Data, data_len: int, index: int) -> int:
    """Return the operator's begin in µs since 1970, 0 on failure."""
    return value_of(0, runtime().op_number, "op_start", data, data_len, index)[0]


def get_op_end(data: Data, data_len: int, index: int) -> int:
    """Return the operator's end in µs since 1970, 0 on failure."""
    return value_of(0, runtime().op_number, "op_end", data, data_len, index)[0]


def get_op_duration(data: Data, data_len: int, index: int) -> int:
    """Return the operator's duration in µs, 0 on failure."""
    return value_of(0, runtime().op_number, "op_duration", data, data_len, index)[0]


def get_model_id(data: Data, data_len: int, index: int) -> int:
    """Return the operator's model, 0 on failure."""
    return value_of(0, runtime().op_number, "model_id", data, data_len, index)[0]


def create_stamp() -> int:
    """Return a new stamp, 0 on failure."""
    return stamps.create()


def set_stamp_trace_message(stamp: int, msg: str | bytes | int, msg_len: int) -> int:
    """Set the stamp's message: a text, bytes, or the address of `msg_len` bytes."""
    return value_of(FAILED, stamps.set_message, stamp, msg, msg_len)[0]


def mark(stamp: int) -> int:
    """Write a mark of the present time."""
    return value_of(FAILED, stamps.mark, stamp)[0]


def push(stamp: int) -> int:
    """Begin a span with the stamp's message."""
    return value_of(FAILED, stamps.push, stamp)[0]


def pop() -> int:
    """End the span that was pushed last."""
    return stamps.pop()


def range_start(stamp: int) -> tuple[int, int]:
    """Begin a range. Return its id, and a code."""
    return value_of((0, FAILED), stamps.range_start, stamp)[0]


def range_stop(range_id: int) -> int:
    """End the range of this id."""
    return value_of(FAILED, stamps.range_stop, range_id)[0]


def destroy_stamp(stamp: int) -> int:
    """Free a stamp; return 0 or -1."""
    return value_of(FAILED, stamps.destroy, stamp)[0]


def _fitting(room: int, found: tuple[str, int]) -> tuple[str, int]:
    length = len(found[0].encode())
    if length <= room:
        return found
    _log.warning("get_op_type, get_op_name: %r has %d bytes, more than the %d that were given", found[0], length, room)
    return "", 500000


__getattr__ = refusing("acl.prof")
