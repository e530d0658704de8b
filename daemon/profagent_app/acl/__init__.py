"""pyACL's names over the SS928's runtime: `from profagent_app import acl` in place of `import acl`.

As in pyACL, functions return a code, 0 for success, or a value and a code. Only LibraryError is raised, also for a name
of pyACL that is missing here. The reason of a failure is a warning of the logger `profagent_app`. Besides profiling,
`mdl` and `rt` have what a program needs to run a model: thin calls of the library's functions of the same names.
"""

from __future__ import annotations

from profagent_app.acl import mdl, prof, rt, util
from profagent_app.acl.binding import code_of, refusing, returning_value, runtime, value_of

__all__ = [
    "create_data_buffer",
    "destroy_data_buffer",
    "finalize",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "init",
    "mdl",
    "prof",
    "rt",
    "update_data_buffer",
    "util",
]

get_data_buffer_addr = returning_value("svp_acl_get_data_buffer_addr")
get_data_buffer_size = returning_value("svp_acl_get_data_buffer_size")


def init(config_path: str | None = None) -> int:
    """Call `svp_acl_init`, with or without the path of an acl.json."""
    return code_of(runtime().init, config_path)


def finalize() -> int:
    """Call `svp_acl_finalize`, and return its code."""
    return code_of(runtime().finalize)


def create_data_buffer(data: int, size: int, stride: int | None = None) -> int:
    """Return the address of a data buffer, 0 on failure. Without `stride` it gets the model's own."""
    return value_of(0, runtime().create_data_buffer, data, size, stride)[0]


def update_data_buffer(data_buffer: int, data: int, size: int, stride: int | None = None) -> int:
    """Change the data of a data buffer."""
    return code_of(runtime().update_data_buffer, data_buffer, data, size, stride)


def destroy_data_buffer(data_buffer: int) -> int:
    """Free a data buffer, but not its data."""
    return code_of(runtime().destroy_data_buffer, data_buffer)


__getattr__ = refusing("acl")
