"""`acl.rt`: devices and contexts."""

from __future__ import annotations

from profagent_app.acl.binding import code_of, runtime, value_of


def set_device(device_id: int) -> int:
    """Use a device; the SS928 has device 0."""
    return code_of(runtime().call, "svp_acl_rt_set_device", device_id)


def reset_device(device_id: int) -> int:
    """Give a device back."""
    return code_of(runtime().call, "svp_acl_rt_reset_device", device_id)


def create_context(device_id: int) -> tuple[int, int]:
    """A context's address, and a code."""
    return value_of(0, runtime().create_context, device_id)


def set_context(context: int) -> int:
    """Use a context in this thread."""
    return code_of(runtime().call, "svp_acl_rt_set_current_context", context)


def destroy_context(context: int) -> int:
    """Free a context."""
    return code_of(runtime().call, "svp_acl_rt_destroy_context", context)
