"""The simulated board: a pretend NPU that writes true JOB directories."""

from __future__ import annotations

from profagentd.simulate.model_file import load_network
from profagentd.simulate.options import SimulationOptions, add_simulation_arguments, options_from
from profagentd.simulate.run import SimulationReport, simulate, write_job

__all__ = [
    "SimulationOptions",
    "SimulationReport",
    "add_simulation_arguments",
    "load_network",
    "options_from",
    "simulate",
    "write_job",
]
