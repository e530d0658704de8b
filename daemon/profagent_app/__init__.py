"""The side of profagent inside the profiled program, for Python 3.8, with the standard library only.

from profagent_app import mark, span            # marks in the timeline
from profagent_app import acl                   # pyACL's functions: models, profiling, subscription
from profagent_app import Profiler, schedule    # MindSpore's Profiler
from profagent_app.runtime import Runtime       # the runtime library itself
"""

from __future__ import annotations

from profagent_app.marks import mark, span
from profagent_app.parameters import AicoreMetrics, ProfilerActivity, ProfilerLevel
from profagent_app.profiler import Profiler, tensor_board_trace_handler, tensorboard_trace_handler
from profagent_app.schedule import ProfilerAction, schedule

__all__ = [
    "AicoreMetrics",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "mark",
    "schedule",
    "span",
    "tensor_board_trace_handler",
    "tensorboard_trace_handler",
]
