"""`acl.rt`: devices, contexts, streams and memory."""

from __future__ import annotations

import ctypes

from profagent_app.acl.binding import code_of, refusing, returning_code, returning_output

_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int32

set_device = returning_code("svp_acl_rt_set_device")
reset_device = returning_code("svp_acl_rt_reset_device")
get_device = returning_output("svp_acl_rt_get_device", _NUMBER)
get_device_count = returning_output("svp_acl_rt_get_device_count", ctypes.c_uint32)
get_run_mode = returning_output("svp_acl_rt_get_run_mode", _NUMBER)
synchronize_device = returning_code("svp_acl_rt_synchronize_device")
set_op_wait_timeout = returning_code("svp_acl_rt_set_op_wait_timeout")

create_context = returning_output("svp_acl_rt_create_context", _ADDRESS)
get_context = returning_output("svp_acl_rt_get_current_context", _ADDRESS)
set_context = returning_code("svp_acl_rt_set_current_context")
destroy_context = returning_code("svp_acl_rt_destroy_context")

create_stream = returning_output("svp_acl_rt_create_stream", _ADDRESS)
synchronize_stream = returning_code("svp_acl_rt_synchronize_stream")
destroy_stream = returning_code("svp_acl_rt_destroy_stream")

malloc = returning_output("svp_acl_rt_malloc", _ADDRESS)
malloc_cached = returning_output("svp_acl_rt_malloc_cached", _ADDRESS)
mem_flush = returning_code("svp_acl_rt_mem_flush")
mem_invalidate = returning_code("svp_acl_rt_mem_invalidate")
free = returning_code("svp_acl_rt_free")
malloc_host = returning_output("svp_acl_rt_malloc_host", _ADDRESS)
free_host = returning_code("svp_acl_rt_free_host")


def memcpy(destination: int, room: int, source: int, count: int, _kind: int) -> int:
    """Copy `count` bytes; return a code. The runtime has no such function: processor and NPU share their memory."""
    return code_of(_copy, destination, room, source, count)


def _copy(destination: int, room: int, source: int, count: int) -> None:
    if not destination or not source or not 0 <= count <= room:
        raise ValueError(f"{count} bytes do not fit in {room}, or an address is 0")
    ctypes.memmove(destination, source, count)


__getattr__ = refusing("acl.rt")
