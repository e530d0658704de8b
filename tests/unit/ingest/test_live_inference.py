"""An inference while it is open: its figures, as far as they are known."""

from __future__ import annotations

import numpy as np

from profagent.formats.board_files import Done
from profagent.formats.figure_states import FigureState, Verdict
from profagent.formats.names import LogKind, LogName, parse_log_name
from profagent.ingest.live_inference import OpenInference, RecordColumns

FINAL = Verdict(FigureState.FINAL)


def _name(path: str = "data/aicore.0.m.3.0.1.6.12") -> LogName:
    name = parse_log_name(path)
    assert name is not None
    return name


def _inference(*durations: float, unit: LogKind = LogKind.AICORE) -> OpenInference:
    """Records of so many ticks, or µs on the CPU."""
    none, numbers = np.full(len(durations), -1, np.int32), np.arange(len(durations))
    columns = RecordColumns(unit, np.zeros_like(numbers), numbers, none, np.array(durations, np.float64), {})
    done = Done(file_len=512, start_us=5, end_us=9, cache_hit=1, cache_miss=1)
    return OpenInference(_name(), 0.0, [columns], done=done)


def test_what_ran_on_the_cpu_alone_is_timed_without_the_npu_s_clock() -> None:
    fields = _inference(40.0, 2.0, unit=LogKind.AICPU).fields(FINAL, None, None)
    assert (fields["total_us"], fields["aicpu_us"], fields["records"], fields["slowest"]) == (42.0, 42.0, 0, [])


def test_a_time_of_0_is_not_known() -> None:
    inference = _inference(700)
    inference.done = Done(file_len=256, start_us=0, end_us=0, cache_hit=1, cache_miss=1)
    fields = inference.fields(FINAL, 0.5, None)
    assert (fields["start_us"], fields["end_us"], fields["total_us"]) == (None, None, 350.0)
