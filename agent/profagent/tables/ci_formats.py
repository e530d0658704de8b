"""Formats of continuous benchmarking, made from the documents of `stats` and `diff`.

Bencher's metric format, OpenMetrics, and the array that github-action-benchmark reads as customSmallerIsBetter. The
documents have no difference that must not be formed, and neither have these.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from profagent.errors import UsageError
from profagent.tables.provenance import SIMULATED
from profagent.units import NS_PER_US, US_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from profagent.documents import ChangeDocument, ComparabilityDocument, DiffDocument, StatsDocument

CiFormat = Literal["bmf", "openmetrics", "github-benchmark"]
CI_FORMATS: tuple[CiFormat, ...] = get_args(CiFormat)
_ESCAPED = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


class Measured(NamedTuple):
    """Median of one thing in µs, with its median absolute deviation.

    `labels` name the thing; their values joined are its name. `caveats` say what makes the figures less than facts,
    `change` which way it changed; both are empty for nothing. `base` is the median of the run that it is compared with,
    None without a comparison.
    """

    labels: Mapping[str, str]
    median_us: float
    mad_us: float | None
    caveats: str = ""
    base_us: float | None = None
    change: str = ""

    @property
    def about(self) -> str:
        """Caveats and change."""
        return "; ".join(filter(None, [self.caveats, self.change]))

    @property
    def name(self) -> str:
        """Name of the thing, as `yolov5s / conv1`."""
        return " / ".join(each for each in self.labels.values() if each)


def ci_text(format_: CiFormat, measured: Iterable[Measured]) -> str:
    """Return measured times in a format, in their order."""
    return _WRITERS[format_]([*measured])


def caveats_beside(format_: CiFormat, measured: Iterable[Measured]) -> list[str]:
    """Return the caveats that a format has no place for: people read them beside it."""
    return [*dict.fromkeys(each.caveats for each in measured if each.caveats)] if format_ == "bmf" else []


def of_stats(document: StatsDocument) -> Iterator[Measured]:
    """Yield the rows of an answer of `stats` that have a median. Raises UsageError for times in ticks."""
    if document["unit"] != "us":
        raise UsageError("how long a tick takes is not known", hint="--json has the ticks")
    keys = _KEYS[document["by"]]
    about = _caveats(document["jobs"])
    for row in document["rows"]:
        median = row.get("median", row.get("latency"))
        if isinstance(median, (int, float)):
            mad = row["mad"]
            yield Measured(
                {name: str(row[name]) for name in keys},
                median,
                mad if isinstance(mad, (int, float)) else None,
                about,
            )


# Columns that name a row; the type and the unit of a layer follow from its name.
_KEYS = {
    "layer": ("model", "layer"),
    "type": ("model", "type", "unit"),
    "model": ("model",),
    "device": ("model", "device"),
    "segment": ("model", "segment", "unit"),
    "aicpu": ("model", "layer"),
    "api": ("function", "type"),
    "step": ("step", "range"),
    "frame": ("part", "kind"),
}


def of_diff(document: DiffDocument) -> Iterator[Measured]:
    """Yield what was compared: the new run's median of each latency, sum of layers, layer and call, and the base's."""
    about = "; ".join(filter(None, [_verdict(document["comparability"]), _caveats(document["new"]["jobs"])]))
    for model in document["models"]:
        named = {"model": model["model"]}
        if model["latency"] is not None:
            yield from _changed({**named, "time": "latency"}, model["latency"], about)
        yield from _changed({**named, "time": "sum of layers"}, model["sum_of_layers"], about)
        for match in model["layers"]:
            if match["change"] is not None:
                yield from _changed({**named, "layer": match["change"]["name"]}, match["change"], about)
    for call in document["calls"]:
        yield from _changed({"function": call["name"]}, call, about)


def _changed(labels: Mapping[str, str], change: ChangeDocument, about: str) -> Iterator[Measured]:
    median, base = change["new"]["median"], change["base"]["median"]
    if median is not None:
        said = "slower" if (change["difference"] or 0.0) > 0 else "faster"
        yield Measured(labels, median, change["new"]["mad"], about, base, said if change["significant"] else "")


def _verdict(comparability: ComparabilityDocument) -> str:
    """Return the verdict with the codes of the rules that block something, or were overridden."""
    found = [each for each in comparability["differences"] if each["blocks"]]
    codes = [f"{each['code']} allowed" if each["allowed"] else each["code"] for each in found]
    return f"{comparability['verdict']}{': ' if codes else ''}{', '.join(dict.fromkeys(codes))}"


def _caveats(jobs: Iterable[Mapping[str, object]]) -> str:
    """Return what makes figures less than facts: invented ones, and missing data."""
    found = [*jobs]
    simulated = [SIMULATED] if any(job.get("simulated") for job in found) else []
    incomplete = ["INCOMPLETE: data is missing"] if any(job.get("incomplete") for job in found) else []
    return "; ".join([*simulated, *incomplete])


def _bmf(measured: Iterable[Measured]) -> str:
    # The measure `latency` of Bencher is in ns.
    found = {}
    for each in measured:
        value = each.median_us * NS_PER_US
        latency = {"value": value}
        if each.mad_us is not None:
            mad = each.mad_us * NS_PER_US
            latency |= {"lower_value": value - mad, "upper_value": value + mad}
        found[each.name] = {"latency": latency}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _github_benchmark(measured: Iterable[Measured]) -> str:
    rows = []
    for each in measured:
        row: dict[str, str | float] = {"name": each.name, "unit": "us", "value": each.median_us}
        if each.mad_us is not None:
            row["range"] = f"± {each.mad_us:.3f}"
        base = "" if each.base_us is None else f"base {each.base_us:.3f} us"
        if extra := "\n".join(filter(None, [base, each.about])):
            row["extra"] = extra
        rows.append(row)
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def _openmetrics(measured: list[Measured]) -> str:
    lines = []
    families: list[tuple[str, str, Callable[[Measured], float | None]]] = [
        ("median", "Median time.", lambda each: each.median_us),
        ("mad", "Median absolute deviation of the time.", lambda each: each.mad_us),
        ("base_median", "Median time of the run that it is compared with.", lambda each: each.base_us),
    ]
    for name, about, value_of in families:
        rows = [(each, value) for each in measured if (value := value_of(each)) is not None]
        if rows:
            family = f"profagent_{name}_seconds"
            lines += [f"# TYPE {family} gauge", f"# UNIT {family} seconds", f"# HELP {family} {about}"]
            lines += [f"{family}{{{_labels(each.labels)}}} {value / US_PER_S!r}" for each, value in rows]
    # A label of the series themselves would make another series of each remark.
    if remarks := [each for each in measured if each.about]:
        lines += ["# TYPE profagent_about info", "# HELP profagent_about Caveats of a time, and which way it changed."]
        lines += [f"profagent_about_info{{{_labels({**each.labels, 'about': each.about})}}} 1" for each in remarks]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return re.sub(r'[\\"\n]', lambda found: _ESCAPED[found[0]], text)


_WRITERS: Mapping[CiFormat, Callable[[list[Measured]], str]] = {
    "bmf": _bmf,
    "openmetrics": _openmetrics,
    "github-benchmark": _github_benchmark,
}
