"""The vendor's options for the `profiler` object of an acl.json, as its `collect` spells them."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from profagent.aclconfig.edit import DEFAULTS, Profiler
from profagent.errors import UsageError
from profagent.formats.sampling import INTERVAL_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
_SWITCHES = click.Choice(["on", "off"])
_METRICS = re.compile(r"\w{1,64}", re.ASCII)


def _metrics(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    if text is not None and not _METRICS.fullmatch(text):
        raise UsageError(f"--aac_metrics {text!r} is no name", hint=f"{DEFAULTS.aac_metrics} records, another does not")
    return text


def profiler_options(*, with_defaults: bool) -> Callable[[F], F]:
    """`--interval`, `--acl_api`, `--aacpu`, `--switch`, `--aac_metrics`, which the command is given as `profiler`.

    What is not given is the vendor's default, or without them None.
    """
    given = DEFAULTS if with_defaults else Profiler()

    def decorate(function: F) -> F:
        @click.option("--interval", type=click.IntRange(0, INTERVAL_MAX), default=given.interval, help=_INTERVAL)
        @click.option("--acl_api", "--acl-api", type=_SWITCHES, default=given.acl_api, help="Record API calls.")
        @click.option("--aacpu", "--aicpu", type=_SWITCHES, default=given.aacpu, help="Record layers on the CPU.")
        @click.option("--switch", type=_SWITCHES, default=given.switch, help="Profiling as a whole.")
        @click.option(
            "--aac_metrics",
            "--aic_metrics",
            metavar="NAME",
            default=given.aac_metrics,
            callback=_metrics,
            help=f"{DEFAULTS.aac_metrics} records layers of the NPU; any other name does not.",
        )
        @functools.wraps(function)
        def with_profiler(
            *,
            interval: int | None,
            acl_api: str | None,
            aacpu: str | None,
            switch: str | None,
            aac_metrics: str | None,
            **others: Any,
        ) -> Any:
            return function(profiler=Profiler(switch, None, interval, acl_api, aacpu, aac_metrics), **others)

        return cast("F", with_profiler)

    return decorate


_INTERVAL = "Record each Nth inference; 0 (the vendor's default): only the first after each load of a model."
