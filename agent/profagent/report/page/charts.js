// The charts, drawn by ECharts. They take their colours from the page, and are drawn anew when these change.

const charts = {};
const ROW_PX = 24;
const dark = matchMedia("(prefers-color-scheme: dark)");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isNarrow = () => innerWidth < 760;

// Texts of tooltips are drawn, not parsed: a name with a < in it is only a name.
const tooltip = (formatter) => ({
  renderMode: "richText", confine: true, formatter, backgroundColor: css("--card"), borderColor: css("--line"),
  textStyle: { color: css("--text"), fontSize: 12 },
});
const label = () => ({ color: css("--soft"), fontSize: 12 });
const nameWidth = () => (isNarrow() ? 118 : 290);
const nameLabel = () => ({ ...label(), color: css("--text"), width: nameWidth() - 10, overflow: "truncate" });
const axisColours = () => ({
  axisLabel: label(), nameTextStyle: label(),
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
const LANE_COLOURS = {
  inferences: "#7d8fa5", NPU: "#4f9dde", CPU: "#e08a2e", calls: "#9a7fd1", ranges: "#2f8f5b", operators: "#c2577a",
};
const METRIC_PX = 104;
const ends = spans.reduce((most, [, start, duration]) => Math.max(most, start + duration), 1);
const view = { from: 0, to: ends };
const chosenMetric = () => metrics[Number(byId("metric").value)];
const withUnit = ({ name, unit: of }) => (of ? `${name} (${of})` : name);

function spanColour(lane, name) {
  const colour = LANE_COLOURS[lanes[lane].split(" ")[0]] || LANE_COLOURS.inferences;
  // Neighbours of one lane are told apart by a shade.
  return lanes[lane].includes("layers") && name % 2 ? echarts.color.lift(colour, -0.18) : colour;
}

function drawSpan(params, api) {
  const [lane, start, duration, number] = [0, 1, 2, 3].map((place) => api.value(place));
  const begin = api.coord([start, lane]);
  const end = api.coord([start + duration, lane]);
  const height = api.size([0, 1])[1] * 0.68;
  const wide = { x: begin[0], y: begin[1] - height / 2, width: Math.max(end[0] - begin[0], 1), height };
  const shape = echarts.graphic.clipRectByRect(wide, params.coordSys);
  if (!shape) return undefined;
  const children = [{ type: "rect", shape, style: { fill: spanColour(lane, number) } }];
  if (shape.width > 28) {
    const place = { x: shape.x + 4, y: begin[1], width: shape.width - 8, verticalAlign: "middle" };
    const look = { fill: "#ffffff", fontSize: 11, overflow: "truncate", ellipsis: "…" };
    children.push({ type: "text", silent: true, style: { text: data.timeline.names[number], ...place, ...look } });
  }
  return { type: "group", children };
}

function spanText({ value, seriesType }) {
  if (seriesType !== "custom") return say("{value} at {time}", { value: value[1], time: timeText(value[0]) });
  return `${data.timeline.names[value[3]]}\n${data.timeline.lane_names[value[0]]}\n`
    + say("{duration} from {time}", { duration: durationOf(value[2]), time: timeText(value[1]) });
}

function timeAxis(show) {
  const axisLabel = { ...label(), hideOverlap: true, showMaxLabel: false, show, formatter: (us) => timeText(us) };
  return { type: "value", min: 0, max: ends, ...axisColours(), axisLabel };
}

const laneWidth = () => (isNarrow() ? 100 : 170);

function laneAxis() {
  return { type: "category", data: data.timeline.lane_names, inverse: true, ...axisColours(),
    splitLine: { show: false }, axisLabel: { ...label(), width: laneWidth() - 10, overflow: "truncate" } };
}

function metricAxis(metric) {
  return { type: "value", gridIndex: 1, scale: true, splitNumber: 2, ...axisColours(), name: withUnit(metric),
    nameLocation: "end", nameTextStyle: { ...label(), align: "left" } };
}

function zooms(left, metric) {
  const sight = { startValue: view.from, endValue: view.to };
  // A wheel alone scrolls the page.
  const ways = { zoomOnMouseWheel: "ctrl", preventDefaultMouseMove: false };
  const byHand = { type: "inside", minValueSpan: 1, ...ways, ...sight };
  const slider = { type: "slider", bottom: 6, height: 20, left, right: 16, showDetail: false, brushSelect: false,
    showDataShadow: false, borderColor: css("--line"), fillerColor: "rgba(79,157,222,.18)", ...sight };
  // Spans out of sight are left out; of a metric's line the points on either side are needed.
  return [
    { ...byHand, xAxisIndex: 0, filterMode: "weakFilter" },
    { ...slider, xAxisIndex: 0, filterMode: "weakFilter" },
    ...(metric ? [{ ...byHand, xAxisIndex: 1, filterMode: "none" }] : []),
  ];
}

function timelineSeries(metric) {
  const rows = spans.map(([lane, start, duration, name]) => [lane, start, duration, name, start + duration]);
  const bars = { type: "custom", progressive: 0, renderItem: drawSpan, clip: true, data: rows,
    dimensions: ["lane", "start", "duration", "name", "end"], encode: { x: [1, 4], y: 0 } };
  if (!metric) return [bars];
  return [bars, { type: "line", xAxisIndex: 1, yAxisIndex: 1, showSymbol: false, step: "end", name: metric.name,
    lineStyle: { width: 1.5, color: css("--accent") }, data: metric.points }];
}

function drawTimeline() {
  const left = laneWidth();
  const height = Math.max(lanes.length * ROW_PX, 48);
  const metric = chosenMetric();
  const place = { left, right: 16 };
  const chart = draw("timeline-chart", height + (metric ? METRIC_PX : 0) + 70, {
    grid: [{ ...place, top: 8, height }, ...(metric ? [{ ...place, top: height + 56, height: 70 }] : [])],
    xAxis: [timeAxis(true), ...(metric ? [{ ...timeAxis(false), gridIndex: 1 }] : [])],
    yAxis: [laneAxis(), ...(metric ? [metricAxis(metric)] : [])],
    tooltip: { trigger: "item", ...tooltip(spanText) },
    dataZoom: zooms(left, metric),
    series: timelineSeries(metric),
  });
  chart.off("datazoom");
  chart.on("datazoom", ({ batch }) => {
    // Ours come as a batch for all axes; of the reader's the other axis is told.
    if (batch && batch.length > 1) return;
    const { startValue, endValue } = chart.getOption().dataZoom[batch ? batch[0].dataZoomIndex || 0 : 0];
    zoomTo(startValue, endValue);
  });
  showWindow();
}

const isLong = () => ends > 2e6 && view.to - view.from > 2e5;
const timeText = (us) => (isLong() ? `${numberText(us / 1e6, 2)} s` : `${numberText(us / US_PER_MS, 2)} ms`);
const durationOf = (us) => (us >= US_PER_MS ? `${numberText(us / US_PER_MS, 3)} ms` : `${numberText(us, 1)} us`);

function showWindow() {
  const times = { from: timeText(view.from), to: timeText(view.to), all: timeText(ends) };
  const seen = say("{from} to {to} of {all}", times);
  byId("window").textContent = spans.length ? seen : "";
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

// Inferences whose layers are shown, from the first of their segments to the last, by their time.
const { detailed } = data.timeline;
const ZOOMS = {
  all: () => zoomTo(0, ends),
  in: () => scale(0.5),
  out: () => scale(2),
  typical: () => showSpan(detailed[Math.floor(detailed.length / 2)]),
  slowest: () => showSpan(detailed.at(-1)),
};

function showSpan(span) {
  if (span) zoomTo(span[0] - 0.04 * span[1], span[0] + 1.04 * span[1]);
}

function scale(factor) {
  const middle = (view.from + view.to) / 2;
  const half = ((view.to - view.from) * factor) / 2;
  zoomTo(middle - half, middle + half);
}

const HANDLING = say("Drag to move, Ctrl and wheel to zoom; with the keyboard: ← → + − 0.");

function timelineRule() {
  const { rules, nothing } = data.timeline;
  if (!spans.length) return `${nothing}.`;
  if (!rules.length) return HANDLING;
  return `${say("Shown are {rules}. The exports have all.", { rules: rules.join("; ") })} ${HANDLING}`;
}

function prepareTimeline() {
  const preferred = metrics.findIndex(({ name }) => name === "npu.hw_utilization");
  byId("metric").append(...metrics.map((metric, place) => element("option", { value: place, text: withUnit(metric) })));
  if (metrics.length) byId("metric").value = Math.max(preferred, 0);
  else byId("metric").parentElement.hidden = true;
  byId("metric").addEventListener("change", drawTimeline);
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => ZOOMS[button.dataset.zoom]());
  }
  byId("timeline-chart").addEventListener("keydown", onTimelineKey);
  byId("timeline-rule").textContent = timelineRule();
}

function onTimelineKey(event) {
  const step = (view.to - view.from) / 4;
  const move = (by) => zoomTo(view.from + by, view.to + by);
  const keys = { "+": ZOOMS.in, "=": ZOOMS.in, "-": ZOOMS.out, 0: ZOOMS.all, ArrowLeft: () => move(-step),
    ArrowRight: () => move(step) };
  if (event.key in keys && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    keys[event.key]();
  }
}

// Layers, and how durations are spread.

const fewMarks = () => (isNarrow() ? { splitNumber: 2 } : {});
const MOST_BARS = 20;
const BLUE = "#4f9dde";

function layerFigures(row) {
  const figures = { share: numberText(row.share, 2), median: durationText(row.median),
    bound: say(row["bound by"] || UNKNOWN) };
  return `${layerName(row)}\n${row.type}\n${say("{share} %, median {median}, bound by {bound}", figures)}`;
}

function drawLayers() {
  const rows = data.ranked.slice(0, MOST_BARS).reverse();
  const all = data.ranked.length;
  const shown = say(all > rows.length
    ? "The {shown} of {all} rows that take the most time; the table below has all figures."
    : "All rows; the table below has all figures.", { shown: rows.length, all: countText(all) });
  const about = data.models.flatMap((model) => model.about.map((line) => `${line}.`));
  byId("layers-rule").textContent = all ? [shown, ...about].join(" ")
    : say("No layer was recorded.");
  const bars = rows.map((row) => ({ value: row.share, itemStyle: { color: colourOf(boundOf(row)), borderRadius: 3 } }));
  const share = { ...label(), show: true, position: "right", formatter: ({ value }) => `${numberText(value, 1)} %` };
  draw("layers-chart", Math.max(rows.length, 1) * ROW_PX + 40, {
    grid: { left: nameWidth(), right: 64, top: 8, bottom: 28 },
    xAxis: { type: "value", ...fewMarks(), ...axisColours(), axisLabel: { ...label(), formatter: "{value} %" } },
    yAxis: { type: "category", data: rows.map(layerName), ...axisColours(), axisLabel: nameLabel() },
    tooltip: { trigger: "item", ...tooltip(({ dataIndex }) => layerFigures(rows[dataIndex])) },
    series: [{ type: "bar", barMaxWidth: 14, data: bars, label: share }],
  });
}

const titleStyle = () => ({ color: css("--text"), fontSize: 13, fontWeight: 600 });
const chartTitle = (text) => ({ text, left: 0, top: 0, textStyle: titleStyle() });

function drawSpreads() {
  const found = data.spreads.inferences[Number(byId("model").value)];
  if (found) drawInferences(found);
  drawLayerSpreads();
  const { points } = data.spreads;
  const thinned = found && found.count > points
    ? say(" Of {count} inferences the line has the lowest and the highest in {parts} parts.",
      { count: countText(found.count), parts: points / 2 }) : "";
  const rule = found && found.all > found.count
    ? say("The histogram is of all {all} inferences with their warm-up, the line of the {count} that were kept.",
      { all: countText(found.all), count: countText(found.count) }) : say("Warm-up is left out.");
  byId("spread-rule").textContent = rule + thinned;
}

function drawInferences({ what, unit: of, counts, edges, course }) {
  const isMs = of === "us" && edges.at(-1) >= 10 * US_PER_MS;
  const unitName = isMs ? "ms" : of;
  const value = (each) => (isMs ? each / US_PER_MS : each);
  const grid = { left: 58, right: 16, top: 34, bottom: 44 };
  const middles = counts.map((_, place) => numberText(value((edges[place] + edges[place + 1]) / 2), 3));
  const bin = (place) => say("{from} to {to} {unit}\n{count} inferences", { from: numberText(value(edges[place])),
    to: numberText(value(edges[place + 1])), unit: unitName, count: counts[place] });
  draw("histogram-chart", 260, {
    title: chartTitle(`${say(what)} (${unitName})`), grid,
    xAxis: { type: "category", data: middles, ...axisColours() },
    yAxis: { type: "value", minInterval: 1, ...axisColours() },
    tooltip: { trigger: "item", ...tooltip(({ dataIndex: at }) => bin(at)) },
    series: [{ type: "bar", barCategoryGap: "8%", data: counts,
      itemStyle: { color: BLUE, borderRadius: [2, 2, 0, 0] } }],
  });
  const pointText = ({ value: [place, time] }) => `${say("inference")} ${place + 1}\n${numberText(time)} ${unitName}`;
  draw("course-chart", 260, {
    title: chartTitle(`${say("Inference after inference")} (${unitName})`), grid,
    xAxis: { type: "value", ...axisColours(), splitLine: { show: false } },
    yAxis: { type: "value", scale: true, ...axisColours() },
    tooltip: { trigger: "item", ...tooltip(pointText) },
    series: [{ type: "line", showSymbol: course.length < 80, symbolSize: 5, lineStyle: { width: 1.2 },
      itemStyle: { color: BLUE }, data: course.map(([place, time]) => [place, value(time)]) }],
  });
}

function drawLayerSpreads() {
  const layers = [...data.spreads.layers].reverse();
  const of = data.spreads.unit;
  const text = ({ name, quantiles }) => `${name}\n${quantiles.map((each) => numberText(each)).join("  ")} ${of}`;
  draw("spread-chart", Math.max(layers.length, 1) * ROW_PX + 76, {
    title: chartTitle(say("Layers ({unit}): 5, 25, 50, 75 and 95 %", { unit: of })),
    grid: { left: nameWidth(), right: 24, top: 34, bottom: 30 },
    xAxis: { type: "value", scale: true, ...fewMarks(), ...axisColours() },
    yAxis: { type: "category", data: layers.map(({ name }) => name), ...axisColours(), axisLabel: nameLabel() },
    tooltip: { trigger: "item", ...tooltip(({ dataIndex }) => text(layers[dataIndex])) },
    series: [{ type: "boxplot", boxWidth: [6, 12], data: layers.map(({ quantiles }) => quantiles),
      itemStyle: { color: "rgba(79,157,222,.35)", borderColor: BLUE } }],
  });
}

function prepareSpreads() {
  const models = data.spreads.inferences.map(({ name }, place) => element("option", { value: place, text: name }));
  byId("model").append(...models);
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
