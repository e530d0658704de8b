"""pyACL's names over the SS928's runtime: `from profagent_app import acl` in place of `import acl`.

As in pyACL, functions return a code, 0 when all is well, or a value and a code; nothing is raised but LibraryError,
also for a name of pyACL that is not here. What was wrong is a warning of the logger `profagent_app`. Besides profiling,
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
    """`svp_acl_init`; with the path of an acl.json or without."""
    return code_of(runtime().init, config_path)


def finalize() -> int:
    """`svp_acl_finalize`."""
    return code_of(runtime().finalize)


def create_data_buffer(data: int, size: int, stride: int | None = None) -> int:
    """The address of a description of memory; 0 on failure. `stride` is the model's own unless given."""
    return value_of(0, runtime().create_data_buffer, data, size, stride)[0]


def update_data_buffer(data_buffer: int, data: int, size: int, stride: int | None = None) -> int:
    """Let a description say something else."""
    return code_of(runtime().update_data_buffer, data_buffer, data, size, stride)


def destroy_data_buffer(data_buffer: int) -> int:
    """Free a description, not its memory."""
    return code_of(runtime().destroy_data_buffer, data_buffer)


__getattr__ = refusing("acl")
