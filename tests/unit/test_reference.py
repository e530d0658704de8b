"""Generated pages: that of metrics names what a new collector lacks, and manual pages print every text as it is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagentd.metrics import collectors
from profagentd.metrics.collectors import Sample, all_collectors
from tools import make_man, make_reference


def _clock(_board: Path) -> Iterator[Sample]:
    """The clock of the memory."""
    yield Sample("clock.memory", "MHz", 1600.0)


def _fan(board: Path) -> Iterator[Sample]:
    """The fan, which the simulated board has not."""
    yield Sample("fan.speed", "/s", float((board / "proc/fan").read_text()))


def test_a_metric_is_on_the_page_with_its_unit() -> None:
    page = make_reference.metrics_page()
    assert "\n## cpu\n\nBusy share of each core's time, from /proc/stat.\n\n- `cpu.all` (%)\n" in page
    assert "- `mV`: millivolts\n" in page


@pytest.mark.parametrize(("collector", "lacks"), [(_clock, "no meaning of MHz"), (_fan, "simulate/board.py.*: new")])
def test_a_new_collector_is_told_what_it_lacks(collector: object, lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_reference, "all_collectors", lambda *places: {**all_collectors(*places), "new": collector})
    with pytest.raises(SystemExit, match=lacks):
        make_reference.metrics_page()


def test_every_collector_is_in_the_table_of_collectors() -> None:
    own = [each for each in vars(collectors).values() if getattr(each, "__module__", "") == collectors.__name__]
    called = [each.__call__ if inspect.isclass(each) else each for each in own]
    names = {each.__name__ for each, call in zip(own, called, strict=True) if _gives_samples(call)}
    assert names == {getattr(each, "__name__", type(each).__name__) for each in all_collectors((), b"").values()}


def _gives_samples(function: object) -> bool:
    return "[Sample]" in str(getattr(function, "__annotations__", {}).get("return"))


def test_manual_pages_print_texts_as_they_are() -> None:
    assert make_man.escaped("a\\b --for '…' ~/^") == r"a\eb \-\-for \(aq\[u2026]\(aq \(ti/\(ha"
    assert make_man._text(".1 is no request") == [r"\&.1 is no request"]


def test_the_manual_page_has_every_command_with_its_options() -> None:
    page = make_man.host_page()
    assert r".SS profagent keys issue host" in page
    assert "\n.TP\n\\fB\\-\\-until\\-finished\\fR\n" in page
    assert page.isascii()
    lines = page.splitlines()
    requests = {line.split()[0] for line in lines if line.startswith((".", "'"))}
    assert requests <= {'.\\"', ".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi", ".RS", ".RE", ".B", ".BR"}
