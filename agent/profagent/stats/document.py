"""The columns of a row of `stats`, and the JSON document of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from profagent.formats.countermap import bound_mark
from profagent.formats.inference_times import LatencyFrom, recorded_text
from profagent.stats.session_figures import KEYS, OF_WHOLE_INFERENCES
from profagent.tables.provenance import likely_counters
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.documents import FrameDocument, LeftOutDocument, ModelDocument, ProvenanceDocument, StatsDocument
    from profagent.stats.session_figures import ModelFigures, Row
    from profagent.stats.stats import Stats
    from profagent.tables.table import Cell

# The unit of a column: that of the answer, one of its own, or none.
ANSWERS = "the answer's"
_FIGURES = dict.fromkeys(("mean", "median", "mad", "p95", "p99", "max"), ANSWERS)
# Of layers and what is made of them, by their time in the mean inference; of what is no inference's, by its total.
OF_LAYERS: Mapping[str, str] = {"count": "", "in_inference": ANSWERS, "share": "%", **_FIGURES}
OF_OTHERS: Mapping[str, str] = {"count": "", "total": ANSWERS, "share": "%", **_FIGURES}
# Of the runtime's functions `self` is the total without calls inside their calls: shares are of that.
OF_CALLS: Mapping[str, str] = {"count": "", "total": ANSWERS, "self": ANSWERS, "share": "%", **_FIGURES}
# Figures of latency, then of what else there is of a model's inferences.
OF_MODELS: Mapping[str, str] = {
    "count": "",
    **dict.fromkeys(("latency", "p95", "p99", "mean", "mad", "max"), "us"),
    "latency_from": "",
    "per_second": "1/s",
    "gap": "us",
    "layers": "us",
    "recorded": "",
    "of_layers": "",
}
FIGURES_BY = {"model": OF_MODELS, "device": OF_MODELS, "api": OF_CALLS, "step": OF_OTHERS, "frame": OF_OTHERS}
_WITHOUT_BOUND = ("aicpu", "api", "step", "frame")


def columns_of(by: str) -> dict[str, str]:
    """Return the columns of an answer with their units, by name: the values of `--sort` and the keys in JSON."""
    figures = FIGURES_BY.get(by, OF_LAYERS)
    return {**dict.fromkeys(KEYS[by], ""), **figures, **({} if by in _WITHOUT_BOUND else {"bound by": ""})}


def cells_of(answer: Stats, row: Row, likely: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Return the values of a row in the order of the columns; those that rest on `likely` counters are marked."""
    values: dict[str, Cell] = {
        **dict(zip(KEYS[answer.by], row.key, strict=True)),
        **row.figures._asdict(),
        "count": row.figures.number,
        "share": row.share,
        "in_inference": row.in_inference,
        "self": row.own,
        "bound by": row.bound and row.bound + bound_mark(likely),
    }
    if answer.by in OF_WHOLE_INFERENCES:
        values |= _of_model(next(each for each in answer.models if each.key == row.key))
    return tuple(values[name] for name in columns_of(answer.by))


def _of_model(found: ModelFigures) -> dict[str, Cell]:
    return {
        "count": found.inferences,
        "latency": found.latency.median,
        "latency_from": found.latency_from and str(found.latency_from),
        "per_second": found.per_second,
        "gap": found.gap_us,
        "layers": found.layers.median if found.layers_unit == "us" else None,
        "recorded": found.recorded,
        "of_layers": found.of_layers,
    }


def stats_document(answer: Stats, rows: Sequence[Row], skip: int | None) -> StatsDocument:
    """Return the object that `--json` prints."""
    columns = columns_of(answer.by)
    document: StatsDocument = {
        "by": answer.by,
        "unit": answer.unit,
        "units": {name: answer.unit if unit == ANSWERS else unit for name, unit in columns.items() if unit},
        "simulated": answer.is_simulated,
        "rows": [dict(zip(columns, cells_of(answer, row), strict=True)) for row in rows],
        "all_rows": len(answer.rows),
        "models": [model_document(each) for each in answer.models],
        "likely": likely_counters(answer.provenance),
        "skip": skip,
        "left_out": [cast("LeftOutDocument", each._asdict()) for each in answer.left_out],
        "jobs": cast("list[ProvenanceDocument]", answer.provenance),
    }
    if answer.by == "frame":
        document["frames"] = [cast("FrameDocument", each.document()) for each in answer.frames]
    return document


def model_document(found: ModelFigures) -> ModelDocument:
    """Return a model's latency and sum of layers, and the part of its mean inference that no layer explains."""
    document = {
        **found._asdict(),
        "latency": found.latency._asdict(),
        "layers": found.layers._asdict(),
        "not_in_any_layer": found.parts.rest_us,
        "whole": found.parts.whole_us,
    }
    return cast("ModelDocument", document)


_ORIGINS = {
    LatencyFrom.CALL: "by its calls",
    LatencyFrom.RECORDS: "from first begin to last end, for its calls are not known",
}


def model_lines(found: ModelFigures) -> Iterator[str]:
    """Yield lines on a model: what its shares are of, the origin of its latency, and the layers in the sum."""
    parts = found.parts
    why = "its latency is not known" if found.latency_from is None else "the NPU's clock is not known"
    whole = f"the sum of its layers, for {why}"
    if parts.latency_us is not None and found.latency_from is not None:
        whole = f"its mean latency, {parts.latency_us:,.3f} us, {_ORIGINS[found.latency_from]}"
    yield f"{found.name}: shares are of {whole}; {recorded_text(found.recorded, found.of_layers)}"
    inferences = counted(found.inferences, "inference")
    if 0 < found.latency.number < found.inferences:
        yield f"{found.name}: its latency is known of {found.latency.number:,} of {inferences}"
    if found.layers.number < found.inferences:
        kept = f"{found.layers.number:,} of {inferences}"
        yield f"{found.name}: its layers are those of {kept}: thinned ones have them in us, which are no ticks"
    if parts.is_too_much:
        yield f"{found.name}: its layers take {parts.layers_us:,.3f} us together, more than that: they overlap"
    if found.device is None and found.devices > 1:
        yield f"{found.name}: figures are over {found.devices} devices: `profagent stats --by device` tells them apart"
    if found.lacking:
        lacking = f"{found.lacking:,} of {inferences}"
        yield f"{found.name}: {lacking} lack a layer's record, which counts there with its mean"
