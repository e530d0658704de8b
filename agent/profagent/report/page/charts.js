// The charts, drawn by ECharts. They take their colours from the page, and are drawn anew when these change.

const charts = {};
const ROW_PX = 24;
const dark = matchMedia("(prefers-color-scheme: dark)");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isNarrow = () => innerWidth < 760;
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const FONT = { fontSize: 12 };

// Texts of tooltips are drawn, not parsed: a name with a < in it is only a name.
const tooltip = (formatter) => ({
  renderMode: "richText", confine: true, formatter, backgroundColor: css("--card"), borderColor: css("--line"),
  textStyle: { color: css("--text"), fontSize: 12 },
});
const axisColours = () => ({
  axisLabel: { color: css("--soft"), ...FONT }, nameTextStyle: { color: css("--soft"), ...FONT },
  axisLine: { lineStyle: { color: css("--line") } }, splitLine: { lineStyle: { color: css("--line") } },
  axisTick: { show: false },
});

function draw(id, height, option) {
  const place = byId(id);
  if (height) place.style.height = `${height}px`;
  charts[id] = charts[id] || echarts.init(place);
  charts[id].resize();
  charts[id].setOption({ animation: false, textStyle: { fontFamily: css("--font") }, ...option }, true);
  return charts[id];
}

// The timeline.

const spans = data.timeline.spans;
const lanes = data.timeline.lanes;
const metrics = data.timeline.metrics;
const LANE_COLOURS = { inferences: "#7d8fa5", NPU: "#4f9dde", CPU: "#e08a2e", calls: "#9a7fd1", ranges: "#2f8f5b", operators: "#c2577a" };
const ends = spans.reduce((most, [, start, duration]) => Math.max(most, start + duration), 1);
const view = { from: 0, to: ends };

const spanColour = (lane, name) => {
  const colour = LANE_COLOURS[lanes[lane].split(" ")[0]] || "#7d8fa5";
  // Neighbours of one lane are told apart by a shade.
  return lanes[lane].includes("layers") && name % 2 ? echarts.color.lift(colour, -0.18) : colour;
};

function drawSpan(params, api) {
  const lane = api.value(0);
  const begin = api.coord([api.value(1), lane]);
  const end = api.coord([api.value(1) + api.value(2), lane]);
  const height = api.size([0, 1])[1] * 0.68;
  const wide = { x: begin[0], y: begin[1] - height / 2, width: Math.max(end[0] - begin[0], 1), height };
  const shape = echarts.graphic.clipRectByRect(wide, params.coordSys);
  if (!shape) return undefined;
  const name = data.timeline.names[api.value(3)];
  const children = [{ type: "rect", shape, style: { fill: spanColour(lane, api.value(3)) } }];
  if (shape.width > 28) {
    const style = { text: name, x: shape.x + 4, y: begin[1], fill: "#ffffff", fontSize: 11, verticalAlign: "middle",
      width: shape.width - 8, overflow: "truncate", ellipsis: "…" };
    children.push({ type: "text", silent: true, style });
  }
  return { type: "group", children };
}

function metricSeries() {
  const metric = metrics[Number(byId("metric").value)];
  if (!metric) return [];
  return [{ type: "line", xAxisIndex: 1, yAxisIndex: 1, showSymbol: false, step: "end", name: metric.name,
    lineStyle: { width: 1.5, color: css("--accent") }, data: metric.points }];
}

function drawTimeline() {
  const left = isNarrow() ? 100 : 170;
  const height = Math.max(lanes.length * ROW_PX, 48);
  const metric = metrics[Number(byId("metric").value)];
  const under = metric ? 104 : 0;
  const time = (text) => ({ type: "value", min: 0, max: ends, ...axisColours(), axisLabel: { color: css("--soft"), ...FONT, hideOverlap: true, showMaxLabel: false, show: text, formatter: (us) => timeText(us) } });
  // A wheel alone scrolls the page.
  const byHand = { minValueSpan: 1, zoomOnMouseWheel: "ctrl", preventDefaultMouseMove: false };
  const sight = { startValue: view.from, endValue: view.to };
  const option = {
    grid: [{ left, right: 16, top: 8, height }, ...(metric ? [{ left, right: 16, top: height + 56, height: 70 }] : [])],
    xAxis: [time(true), ...(metric ? [{ ...time(false), gridIndex: 1 }] : [])],
    yAxis: [{ type: "category", data: lanes, inverse: true, ...axisColours(), splitLine: { show: false },
      axisLabel: { color: css("--soft"), ...FONT, formatter: (lane) => cut(lane, isNarrow() ? 13 : 26) } },
    ...(metric ? [{ type: "value", gridIndex: 1, scale: true, splitNumber: 2, ...axisColours(), name: `${metric.name}${metric.unit ? ` (${metric.unit})` : ""}`, nameLocation: "end", nameTextStyle: { color: css("--soft"), ...FONT, align: "left" } }] : [])],
    tooltip: { trigger: "item", ...tooltip(({ value, seriesType }) => (seriesType === "custom"
      ? `${data.timeline.names[value[3]]}\n${lanes[value[0]]}\n${durationOf(value[2])} from ${timeText(value[1])}` : `${value[1]} at ${timeText(value[0])}`)) },
    dataZoom: [
      // Spans out of sight are left out; of a metric's line the points on either side are needed.
      { type: "inside", xAxisIndex: 0, filterMode: "weakFilter", ...byHand, ...sight },
      { type: "slider", xAxisIndex: 0, filterMode: "weakFilter", bottom: 6, height: 20, left, right: 16, showDetail: false,
        brushSelect: false, borderColor: css("--line"), fillerColor: "rgba(79,157,222,.18)", ...sight },
      ...(metric ? [{ type: "inside", xAxisIndex: 1, filterMode: "none", ...byHand, ...sight }] : []),
    ],
    series: [{ type: "custom", progressive: 0, renderItem: drawSpan, clip: true, data: spans.map(([lane, start, duration, name]) => [lane, start, duration, name, start + duration]),
      dimensions: ["lane", "start", "duration", "name", "end"], encode: { x: [1, 4], y: 0 } }, ...metricSeries()],
  };
  const chart = draw("timeline-chart", height + under + 70, option);
  chart.off("datazoom");
  chart.on("datazoom", ({ batch }) => {
    // Ours come as a batch for all axes; of the reader's the other axis is told.
    if (batch && batch.length > 1) return;
    const { startValue, endValue } = chart.getOption().dataZoom[batch ? batch[0].dataZoomIndex || 0 : 0];
    zoomTo(startValue, endValue);
  });
  showWindow();
}

const timeText = (us) => (ends > 2e6 && view.to - view.from > 2e5 ? `${numberText(us / 1e6, 2)} s` : `${numberText(us / US_PER_MS, 2)} ms`);
const durationOf = (us) => (us >= US_PER_MS ? `${numberText(us / US_PER_MS, 3)} ms` : `${numberText(us, 1)} us`);

function showWindow() {
  byId("window").textContent = spans.length ? `${timeText(view.from)} to ${timeText(view.to)} of ${timeText(ends)}` : "";
}

function zoomTo(from, to) {
  const span = Math.min(Math.max(to - from, 1), ends);
  view.from = Math.min(Math.max(from, 0), ends - span);
  view.to = view.from + span;
  const batch = [0, 1, 2].slice(0, metrics.length ? 3 : 2).map((dataZoomIndex) =>
    ({ dataZoomIndex, startValue: view.from, endValue: view.to }));
  charts["timeline-chart"].dispatchAction({ type: "dataZoom", batch });
  showWindow();
}

// Inferences whose layers are shown, by time.
function detailed() {
  const layered = spans.filter(([lane]) => lanes[lane].includes(" layers"));
  const starts = layered.map(([, start]) => start).sort((one, other) => one - other);
  const has = ([, start, duration]) => {
    let low = 0;
    let high = starts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (starts[middle] < start) low = middle + 1;
      else high = middle;
    }
    return low < starts.length && starts[low] <= start + duration;
  };
  return spans.filter((span) => lanes[span[0]].startsWith("inferences") && has(span)).sort((one, other) => one[2] - other[2]);
}

const ZOOMS = {
  all: () => zoomTo(0, ends),
  in: () => scale(0.5),
  out: () => scale(2),
  typical: () => showSpan(detailed().at(Math.floor(detailed().length / 2))),
  slowest: () => showSpan(detailed().at(-1)),
};

function showSpan(span) {
  if (span) zoomTo(span[1] - 0.04 * span[2], span[1] + 1.04 * span[2]);
}

function scale(factor) {
  const middle = (view.from + view.to) / 2;
  const half = ((view.to - view.from) * factor) / 2;
  zoomTo(middle - half, middle + half);
}

const HANDLING = "Drag to move, Ctrl and wheel to zoom; with the keyboard: ← → + − 0.";

function prepareTimeline() {
  const preferred = metrics.findIndex(({ name }) => name === "npu.hw_utilization");
  byId("metric").append(...metrics.map(({ name, unit: of }, place) =>
    element("option", { value: place, text: of ? `${name} (${of})` : name })));
  if (metrics.length) byId("metric").value = Math.max(preferred, 0);
  else byId("metric").parentElement.hidden = true;
  byId("metric").addEventListener("change", drawTimeline);
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => ZOOMS[button.dataset.zoom]());
  }
  byId("timeline-chart").addEventListener("keydown", (event) => {
    const step = (view.to - view.from) / 4;
    const keys = { "+": ZOOMS.in, "=": ZOOMS.in, "-": ZOOMS.out, 0: ZOOMS.all,
      ArrowLeft: () => zoomTo(view.from - step, view.to - step), ArrowRight: () => zoomTo(view.from + step, view.to + step) };
    if (event.key in keys && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  const rules = data.timeline.rules;
  byId("timeline-rule").textContent = spans.length
    ? (rules.length ? `Shown are ${rules.join("; ")}. The exports have all. ${HANDLING}` : HANDLING)
    : "Nothing of the session has a known place in time.";
}

// Layers, and how durations are spread.

const MOST_BARS = 20;

function drawLayers() {
  const rows = data.stats.layer.rows.slice(0, MOST_BARS).reverse();
  const all = data.stats.layer.rows.length;
  byId("layers-rule").textContent = `The ${Math.min(MOST_BARS, all)} layers of ${countText(all)} that take the most time; the table below has all.`;
  draw("layers-chart", Math.max(rows.length, 1) * ROW_PX + 40, {
    grid: { left: isNarrow() ? 120 : 300, right: 64, top: 8, bottom: 28 },
    xAxis: { type: "value", ...axisColours(), axisLabel: { color: css("--soft"), ...FONT, formatter: "{value} %" } },
    yAxis: { type: "category", data: rows.map((row) => row.layer), ...axisColours(),
      axisLabel: { color: css("--text"), ...FONT, formatter: (name) => cut(name, isNarrow() ? 17 : 44) } },
    tooltip: { trigger: "item", ...tooltip(({ dataIndex }) => {
      const row = rows[dataIndex];
      return `${row.layer}\n${row.type}\n${numberText(row.share, 2)} %, median ${durationText(row.median)}, bound by ${row["bound by"] || UNKNOWN}`;
    }) },
    series: [{ type: "bar", barMaxWidth: 14, data: rows.map((row) => ({ value: row.share, itemStyle: { color: colourOf(boundOf(row)), borderRadius: 3 } })),
      label: { show: true, position: "right", color: css("--soft"), ...FONT, formatter: ({ value }) => `${numberText(value, 1)} %` } }],
  });
}

function drawSpreads() {
  const found = data.spreads.inferences[Number(byId("model").value)];
  const scaleOf = found && found.edges.at(-1) >= 10 * US_PER_MS && data.spreads.unit === "us" ? US_PER_MS : 1;
  const unitName = scaleOf === 1 ? data.spreads.unit : "ms";
  const value = (each) => each / scaleOf;
  const grid = { left: 58, right: 16, top: 34, bottom: 44 };
  const title = (text) => ({ text, left: 0, top: 0, textStyle: { color: css("--text"), fontSize: 13, fontWeight: 600 } });
  if (found) {
    const middles = found.counts.map((_, place) => numberText(value((found.edges[place] + found.edges[place + 1]) / 2), 3));
    draw("histogram-chart", 260, {
      title: title(`How long an inference takes (${unitName})`), grid,
      xAxis: { type: "category", data: middles, ...axisColours() }, yAxis: { type: "value", minInterval: 1, ...axisColours() },
      tooltip: { trigger: "item", ...tooltip(({ dataIndex }) => `${numberText(value(found.edges[dataIndex]))} to ${numberText(value(found.edges[dataIndex + 1]))} ${unitName}\n${found.counts[dataIndex]} inferences`) },
      series: [{ type: "bar", barCategoryGap: "8%", data: found.counts, itemStyle: { color: "#4f9dde", borderRadius: [2, 2, 0, 0] } }],
    });
    draw("course-chart", 260, {
      title: title(`Inference after inference (${unitName})`), grid,
      xAxis: { type: "value", ...axisColours(), splitLine: { show: false } }, yAxis: { type: "value", scale: true, ...axisColours() },
      tooltip: { trigger: "item", ...tooltip(({ value: [place, time] }) => `inference ${place + 1}\n${numberText(time)} ${unitName}`) },
      series: [{ type: "line", showSymbol: found.course.length < 80, symbolSize: 5, lineStyle: { width: 1.2 }, itemStyle: { color: "#4f9dde" },
        data: found.course.map(([place, time]) => [place, value(time)]) }],
    });
  }
  const layers = [...data.spreads.layers].reverse();
  draw("spread-chart", Math.max(layers.length, 1) * ROW_PX + 76, {
    title: title(`The layers that take the most time (${data.spreads.unit}): 5, 25, 50, 75 and 95 %`),
    grid: { left: isNarrow() ? 120 : 300, right: 24, top: 34, bottom: 30 },
    xAxis: { type: "value", scale: true, ...axisColours() },
    yAxis: { type: "category", data: layers.map(({ name }) => name), ...axisColours(),
      axisLabel: { color: css("--text"), ...FONT, formatter: (name) => cut(name, isNarrow() ? 17 : 44) } },
    tooltip: { trigger: "item", ...tooltip(({ dataIndex }) => `${layers[dataIndex].name}\n${layers[dataIndex].quantiles.map((each) => numberText(each)).join("  ")} ${data.spreads.unit}`) },
    series: [{ type: "boxplot", boxWidth: [6, 12], data: layers.map(({ quantiles }) => quantiles), itemStyle: { color: "rgba(79,157,222,.35)", borderColor: "#4f9dde" } }],
  });
  byId("spread-rule").textContent = found && found.count > data.spreads.points
    ? `Warm-up is left out. The course of ${countText(found.count)} inferences has the lowest and the highest of each ${data.spreads.points / 2}th part.`
    : "Warm-up is left out.";
}

function prepareSpreads() {
  byId("model").append(...data.spreads.inferences.map(({ name }, place) => element("option", { value: place, text: name })));
  byId("model").parentElement.parentElement.hidden = data.spreads.inferences.length < 2;
  byId("model").addEventListener("change", drawSpreads);
}

function drawAll() {
  if (spans.length || metrics.length) drawTimeline();
  drawLayers();
  drawSpreads();
}

prepareTimeline();
prepareSpreads();
drawAll();
if (spans.length) ZOOMS.typical();
dark.addEventListener("change", drawAll);
let resizing = 0;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(drawAll, 120); });
