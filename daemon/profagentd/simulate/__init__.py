"""The simulated board: a pretend NPU that writes true JOB directories."""

from __future__ import annotations

from profagentd.simulate.run import SimulationOptions, SimulationReport, simulate, write_job

__all__ = ["SimulationOptions", "SimulationReport", "simulate", "write_job"]
