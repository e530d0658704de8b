"""The report as its reader meets it: one file in a real browser, without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, ViewportSize, sync_playwright

from profagent.stats.stats import BYS
from profagent_app.marks import Kind
from tests.daemon.simulated_job import START_US
from tests.fakes.spooled import MARKS, METRICS, mark, spooled, sweeps
from tests.integration.board import eventually, simulated
from tests.integration.host import profagent, recorded

OBJECTIVE = "latency.max < 1us"
WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
STEP_US = 100_000
LEAST_PICTURE = 10_000
RULE = "li[data-rule=split-activation]"
# Nine tenths of it are on the CPU, behind the NPU.
TAIL = """
name = "tail"
[[segments]]
unit = "aicore"
runs = [{ time_us = 1000.0, layers = ["conv:Convolution"] }]
[[segments]]
unit = "aicpu"
runs = [{ time_us = 9000.0, layers = ["nms:NonMaxSuppression"] }]
"""
# Three English words one behind another; names, units and identifiers are shorter, or not of small letters.
SENTENCE = re.compile(r"\b[A-Za-z][a-z']+(?: [a-z']+){2,}")
# What stays English: commands, the vendor's manual, names of columns and layers, what a log says.
ENGLISH = ".source, code, table"
SPAN = re.compile(r"([\d,.]+) (m?s) to ([\d,.]+) (m?s) of")


class Opened:
    """The page, and what went wrong in it."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("console", lambda message: self.wrong.append(message.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", lambda request: self._requested(request.url))
        page.goto(file.as_uri())

    def _requested(self, url: str) -> None:
        if not url.startswith(("file:", "data:")):
            self.wrong.append(url)

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def span_ms(self) -> float:
        """How much of time the timeline shows."""
        found = SPAN.match(self.text("#window"))
        assert found
        start, end = (float(found[at].replace(",", "")) * (1 if found[at + 1] == "ms" else 1000) for at in (1, 3))
        return end - start

    def looks(self, **media: Any) -> tuple[str, str]:
        """The colours of ground and text."""
        self.page.emulate_media(**media)
        style = "getComputedStyle(document.body)"
        found = self.page.evaluate(f"[{style}.backgroundColor, {style}.color]")
        return found[0], found[1]

    def is_drawn(self, chart: str) -> bool:
        """Whether a chart has more than its ground: a picture of one colour is small."""
        picture = f"document.querySelector('#{chart} canvas').toDataURL()"
        return len(self.page.evaluate(picture)) > LEAST_PICTURE


def shown_as(cell: str, value: object) -> str:
    """A value with as many decimals as the cell has."""
    decimals = len(cell.partition(".")[2])
    return f"{value:,.{decimals}f}" if isinstance(value, int | float) else "N/A" if value is None else str(value)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Session 1: the manual's worked example, its cure beside it; a program's steps and the board's metrics as well."""
    folder = tmp_path_factory.mktemp("report")
    simulated(folder / "board", 12, model="yolov4-mish")
    times = [START_US + number * STEP_US for number in range(12)]
    steps = [mark(Kind.STEP, "frame", time_us, time_us + 40_000, number=at) for at, time_us in enumerate(times)]
    spooled(folder / "board" / MARKS, b"".join(steps))
    values = [(time_us, float(number)) for number, time_us in enumerate(times)]
    spooled(folder / "board" / METRICS, sweeps(*values, names=("npu.hw_utilization", "cpu.all")))
    recorded(folder / "board", folder)
    return folder


@pytest.fixture(scope="module")
def figures(workspace: Path) -> dict[str, list[dict[str, Any]]]:
    """What `stats --json` tells, by what a row is of."""
    return {by: profagent("stats", "1", "--workspace", workspace, "--by", by, "--json").document["rows"] for by in BYS}


@pytest.fixture(scope="module")
def tail(workspace: Path) -> Path:
    """The report of a network whose last layer is on the CPU."""
    (workspace / "tail.toml").write_text(TAIL, "utf-8")
    job, file = simulated(workspace / "tail", 12, model=str(workspace / "tail.toml")), workspace / "tail.html"
    assert profagent("report", job, "-o", file, "--lang", "en").code == 0
    return file


@pytest.fixture(scope="module")
def leaky(workspace: Path) -> Path:
    """The cure of session 1."""
    return simulated(workspace / "cured", 12, model="yolov4-leaky")


@pytest.fixture(scope="module")
def chinese(workspace: Path, leaky: Path) -> Path:
    file = workspace / "chinese.html"
    ended = profagent(
        "report", "1", "--workspace", workspace, "--against", leaky, "--allow", "model", "-o", file, "--lang", "zh"
    )
    assert ended.code == 0, ended.err
    return file


@pytest.fixture(scope="module")
def opened(
    workspace: Path, figures: dict[str, list[dict[str, Any]]], tail: Path, chinese: Path, leaky: Path
) -> Iterator[Opened]:
    """Its report, in headless Chromium; while it runs no command can: its loop is the thread's."""
    file, against = workspace / "report.html", ("--against", leaky, "--allow", "model", "--slo", OBJECTIVE)
    ended = profagent("report", "1", "--workspace", workspace, *against, "-o", file, "--lang", "en")
    # The objective is exceeded.
    assert ended.code == 1, ended.err
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport=WIDE)
        opened = Opened(page, file)
        yield opened
        browser.close()
    assert opened.wrong == [], "nothing went wrong, and nothing was fetched"


def test_its_top_has_advice_and_its_table_the_figures_of_stats(
    opened: Opened, figures: dict[str, list[dict[str, Any]]]
) -> None:
    assert "The NPU does not support the activation Mish" in opened.text("#sentence")
    assert "simulated" in opened.text("#simulated")
    finding = opened.text(RULE)
    for words in ("high", "Replace Mish by LeakyRelu", "at most, 39", "stem.0.softplus | stem.0.tanh | stem.0.mul"):
        assert words in finding
    tops = [opened.page.locator(place).bounding_box() for place in ("#sentence", RULE, "#timeline", "#table")]
    heights = [box["y"] for box in tops if box]
    assert heights == sorted(heights)
    assert heights[1] < WIDE["height"]
    assert opened.page.evaluate("document.documentElement.scrollWidth") == WIDE["width"]
    cells_of = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    columns_of = "all => all.map(each => each.dataset.column)"
    for by, rows in figures.items():
        opened.page.select_option("#by", by)
        shown = opened.page.eval_on_selector_all("#figures tbody tr", cells_of)
        columns = opened.page.eval_on_selector_all("#figures th button", columns_of)
        assert sorted(columns) == sorted(rows[0])
        for cells, row in zip(shown, rows, strict=True):
            assert cells == [shown_as(cell, row[name]) for cell, name in zip(cells, columns, strict=True)]
        assert opened.page.evaluate("by => data.stats[by].rows", by) == rows
    opened.page.select_option("#by", "layer")
    right = "document.querySelector('[data-column=\"bound by\"]').getBoundingClientRect().right"
    assert opened.page.evaluate(right) < WIDE["width"], "what bounds a layer is in sight"


def test_objectives_have_their_verdicts_below_the_advice(opened: Opened) -> None:
    assert opened.text("#judged li.high").startswith(f"EXCEEDED {OBJECTIVE}: ")
    assert opened.page.locator("#sections a[href='#slo']").inner_text() == "Objectives"


def test_the_table_is_searched_and_sorted_with_the_keyboard(opened: Opened) -> None:
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("tanh stage1")
    names = opened.page.eval_on_selector_all("#figures tbody tr", "rows => rows.map(row => row.cells[1].textContent)")
    assert len(names) == 6
    assert all("tanh" in name and "stage1" in name for name in names)
    assert opened.text("#count") == "6 of 183 rows"
    opened.page.focus("[data-column=layer]")
    for direction in ("descending", "ascending"):
        opened.page.keyboard.press("Enter")
        assert opened.page.get_attribute("#figures th[aria-sort]", "aria-sort") == direction
    found = opened.page.eval_on_selector_all("#figures tbody tr", "rows => rows.map(row => row.cells[1].textContent)")
    assert found == sorted(names)
    opened.page.fill("#search", "")
    opened.page.click("[data-column=in_inference]")


def test_the_timeline_has_all_kinds_and_zooms_by_button_wheel_and_keyboard(opened: Opened) -> None:
    assert opened.is_drawn("timeline-chart")
    opened.page.click("[data-zoom=typical]")
    one = opened.span_ms()
    assert one == pytest.approx(23.3 * 1.08, rel=0.05)  # an inference fills it
    opened.page.click("[data-zoom=all]")
    everything = opened.span_ms()
    assert everything > 12 * 23
    opened.page.locator("#timeline-chart").hover()
    opened.page.keyboard.down("Control")
    opened.page.mouse.wheel(0, -300)
    opened.page.keyboard.up("Control")
    assert eventually(lambda: opened.span_ms() < everything)
    opened.page.focus("#timeline-chart")
    opened.page.keyboard.press("0")
    assert opened.span_ms() == pytest.approx(everything)
    opened.page.keyboard.press("+")
    assert opened.span_ms() == pytest.approx(everything / 2, rel=0.01)
    before = opened.text("#window")
    opened.page.keyboard.press("ArrowRight")
    assert opened.text("#window") != before
    opened.page.click("[data-zoom=slowest]")
    assert opened.span_ms() == pytest.approx(one, rel=0.05)
    kinds = ["inferences", "NPU segments", "NPU layers", "CPU segments", "CPU layers", "calls", "ranges"]
    lanes = opened.page.evaluate("data.timeline.lanes")
    assert [lane.startswith(kind) for lane, kind in zip(lanes, kinds, strict=True)] == [True] * len(kinds)
    layers = "data.timeline.spans.filter(([lane]) => data.timeline.lanes[lane] === 'NPU layers').length"
    assert opened.page.evaluate(layers) == sum(
        row["count"] for row in opened.page.evaluate("data.stats.layer.rows") if row["unit"] == "AA_CORE"
    )
    picture = "document.querySelector('#timeline-chart canvas').toDataURL()"
    before = opened.page.evaluate(picture)
    opened.page.click("[data-zoom=all]")
    for metric in ("cpu.all (%)", "npu.hw_utilization (%)"):
        opened.page.select_option("#metric", label=metric)
        assert opened.page.evaluate(picture) != before
        before = opened.page.evaluate(picture)


def test_every_chart_is_drawn_the_comparison_tells_the_cure_and_it_fits_a_dark_phone(opened: Opened) -> None:
    for chart in ("layers-chart", "histogram-chart", "course-chart", "spread-chart"):
        assert opened.is_drawn(chart), chart
    assert "yolov4 latency +64" in opened.text("#compared-verdict")
    assert re.search(r"yolov4 latency \+64\S+ % \(.*\), slower", opened.text("#sentence"))
    assert "loss: none" in opened.text("#caveats")
    assert "rows; counts are of records, files, bytes or calls" in opened.text("#caveats")
    assert "inferences sampled: 12 of 12 due" in opened.text("#tiles")
    picture = "document.querySelector('#layers-chart canvas').toDataURL()"
    light, in_light = opened.looks(color_scheme="light"), opened.page.evaluate(picture)
    dark = opened.looks(color_scheme="dark")
    assert eventually(lambda: opened.page.evaluate(picture) != in_light)
    assert (light, dark) == (("rgb(246, 247, 249)", "rgb(27, 36, 48)"), ("rgb(16, 21, 28)", "rgb(228, 233, 239)"))
    opened.page.set_viewport_size(PHONE)
    width = "document.querySelector('#layers-chart canvas').getBoundingClientRect().width"
    # Drawn anew for the smaller window.
    assert eventually(lambda: opened.page.evaluate(width) < PHONE["width"])
    assert opened.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert opened.is_drawn("timeline-chart")
    gain = f"document.querySelector('{RULE} td').getBoundingClientRect().right"
    assert opened.text(f"{RULE} th") == "gain_us"
    assert opened.page.evaluate(gain) < PHONE["width"]


def test_a_layer_on_the_cpu_stands_among_the_others_and_in_sight(opened: Opened, tail: Path) -> None:
    browser = opened.page.context.browser
    assert browser
    ended = Opened(browser.new_page(), tail)
    assert "The CPU takes 90 % of an inference" in ended.text("#sentence")
    assert re.search(r"nms\s+89.6 %, bound by CPU", ended.text("#tiles"))
    assert re.match(r"CPU 89.6 %", ended.text("#bounds"))
    (model,) = ended.page.evaluate("data.models")
    (execute,) = ended.page.evaluate("data.stats.api.rows.filter((row) => row.function === 'svp_acl_mdl_execute')")
    assert model["latency"]["median"] == pytest.approx(execute["median"], rel=0.01), "but for the warm-up"
    assert re.search(
        rf"Latency\s+{model['latency']['median'] / 1000:.3f} ms\s+median by its calls", ended.text("#tiles")
    )
    shares = {row["layer"]: row["share"] for row in ended.page.evaluate("data.ranked")}
    assert sum(shares.values()) == pytest.approx(100)
    assert f"not in any layer {shares['not in any layer']:.1f} %" in ended.text("#bounds")
    assert ended.page.evaluate("data.spreads.layers.map(({ name }) => name)") == ["nms", "conv"]
    assert ended.span_ms() == pytest.approx(10 * 1.08, rel=0.05)
    assert ended.wrong == []
    ended.page.close()


def test_a_chinese_page_has_no_english_sentence(opened: Opened, chinese: Path) -> None:
    browser = opened.page.context.browser
    assert browser
    read = Opened(browser.new_page(), chinese)
    read.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    texts = "all => all.map((each) => each.textContent)"
    headings = read.page.eval_on_selector_all("h2, #caveats th, #by option", texts)
    assert [text for text in headings if not re.search("[\u4e00-\u9fff]", text) and text != "API"] == []
    for attribute in ("aria-label", "placeholder"):
        labels = f"all => all.map((each) => each.getAttribute('{attribute}'))"
        found = read.page.eval_on_selector_all(f"[{attribute}]", labels)
        assert [text for text in found if SENTENCE.search(text)] == []
    meanings = read.page.eval_on_selector_all("#caveats td:nth-child(3)", texts)
    read.page.evaluate(f"document.querySelectorAll('{ENGLISH}').forEach((each) => each.remove())")
    assert [line for line in [*meanings, *read.text("body").splitlines()] if SENTENCE.search(line)] == []
    assert read.wrong == []
    read.page.close()
