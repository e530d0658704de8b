"""pyACL's names over the SS928's runtime: `from profagent_app import acl` in place of `import acl`.

As in pyACL, functions return a code, 0 when all is well, or a value and a code; nothing is raised but LibraryError.
What was wrong is a warning of the logger `profagent_app`. Of `mdl` and `rt` there is what the profiling pages use.
"""

from __future__ import annotations

from profagent_app.acl import mdl, prof, rt, util
from profagent_app.acl.binding import code_of, runtime

__all__ = ["finalize", "init", "mdl", "prof", "rt", "util"]


def init(config_path: str | None = None) -> int:
    """`svp_acl_init`; with the path of an acl.json or without."""
    return code_of(runtime().init, config_path)


def finalize() -> int:
    """`svp_acl_finalize`."""
    return code_of(runtime().finalize)
