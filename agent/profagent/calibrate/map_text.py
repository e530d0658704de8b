"""Findings as the TOML of a counter map (formats/countermap.py reads it)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tomlkit

from profagent.calibrate.verdict import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.calibrate.fitting import Fit

__all__ = ["fit_text", "map_text"]


def map_text(findings: Sequence[Finding], *, name: str, sdk: str, simulated: bool, digest: str, source: str) -> str:
    """The map of what was found; `digest` is of the evidence, `source` says in words what it was."""
    document = tomlkit.document()
    document.add(
        tomlkit.comment("value = number * scale / denominator; ticks = word 0x04, cycles = 100 * ticks, none = 1")
    )
    document.add(tomlkit.nl())
    document.update({"name": name, "sdk": sdk, "simulated": simulated, "digest": digest})
    counters = tomlkit.table(is_super_table=True)
    for finding in findings:
        if finding.fit is not None:
            counters.add(finding.counter, _table(finding, finding.fit, source))
    document.add("counters", counters)
    return tomlkit.dumps(document)


def fit_text(fit: Fit) -> str:
    """Where a number is, in a few words: `0x10 u32 / cycles`."""
    scale = "" if fit.scale == 1 else f" * {fit.scale:g}"
    return f"{fit.offset:#04x} {fit.type}{scale}" + ("" if fit.denominator == "none" else f" / {fit.denominator}")


def _table(finding: Finding, fit: Fit, source: str) -> tomlkit.items.Table:
    table = tomlkit.table()
    offset = tomlkit.items.Integer(fit.offset, tomlkit.items.Trivia(), f"{fit.offset:#04x}")
    table.update({"offset": offset, "type": fit.type, "scale": fit.scale, "denominator": fit.denominator})
    table["unit"] = "bytes" if finding.counter.endswith("_bytes") else "fraction"
    table["verdict"] = finding.verdict.value
    wider = [rival.type for rival in finding.rivals if rival.offset == fit.offset and rival.type > fit.type]
    same = "".join(f"; as {type_} it reads the same of every layer below 1 s and 4 GiB" for type_ in wider)
    doubt = f"; to settle it: {finding.advice}" if finding.verdict is Verdict.LIKELY else same
    table["evidence"] = f"{fit.agreeing} of {finding.rows} rows of {source}{doubt}"
    return table
