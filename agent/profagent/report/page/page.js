// What is text and tables. Every text is put in as text, never as HTML: names come from boards.

const data = JSON.parse(document.getElementById("data").textContent);
const UNKNOWN = "N/A";
// The text in the page's language: `data.texts` has it by its English form, and is empty in an English report.
const say = (text, values = {}) => (data.texts[text] || text).replace(/\{(\w+)\}/g, (_, name) => values[name]);
const US_PER_MS = 1000;
// What a count of the ledger is of; the reason tells which.
const COUNTED = say("records, files, bytes or calls");
// A longer text may take several lines of its cell.
const LONG_TEXT = 36;
const byId = (id) => document.getElementById(id);

function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  const { text, style, ...attributes } = options;
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  Object.assign(made.style, style);
  made.append(...children.filter((child) => child !== null));
  return made;
}

const isNumber = (value) => typeof value === "number";

function numberText(value, decimals = 3) {
  if (value === null || value === undefined) return UNKNOWN;
  return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

const countText = (value) => numberText(value, 0);

// What stands between backticks is code.
function written(name, attributes, text) {
  const parts = text.split("`").map((part, place) => (place % 2 ? element("code", { text: part }) : part));
  return element(name, attributes, ...parts);
}

const usText = (value) => (value === null ? UNKNOWN
  : Math.abs(value) >= US_PER_MS ? `${numberText(value / US_PER_MS, 3)} ms` : `${numberText(value, 1)} us`);
// Durations of layers are ticks where the clock is not known.
const unit = data.stats.layer.unit;
const durationText = (value) => (value === null || unit !== "ticks" ? usText(value)
  : say("{count} ticks", { count: numberText(value, 0) }));

// Shares are of an inference of a row's own model; of several models each has its part of their time.
const NOT_IN_ANY_LAYER = "not in any layer";
const weights = new Map(data.models.map(({ model, weight }) => [model, weight]));
const weighted = (row) => (row.share || 0) * (weights.get(row.model) ?? 1);
const layerText = (row) => (row.layer === NOT_IN_ANY_LAYER ? say(row.layer) : row.layer);
const layerName = (row) => (data.models.length > 1 ? `${row.model}: ${layerText(row)}` : layerText(row));

// One colour for each bound, the same in light and dark, told apart without red and green.
const BOUND_COLOURS = {
  cube: "#2f8f5b", mac: "#4f9dde", vector: "#7fb069", vec: "#9a7fd1", DLD: "#e08a2e", WLD: "#c2577a", Dstr: "#d0b03a", scalar: "#3aa6a0",
  Dtrans: "#6f7f95", CPU: "#8a5a44", unexplained: "#b35900", [UNKNOWN]: "#9aa5b1", [NOT_IN_ANY_LAYER]: "#c9d1d9",
};
const BOUND_MEANINGS = {
  cube: "the cube unit works well", mac: "cube instructions", vector: "the vector unit works well",
  vec: "vector instructions", DLD: "loading feature maps", WLD: "loading weights", Dstr: "storing results", scalar: "the scalar unit",
  Dtrans: "moving data inside", CPU: "runs on the CPU", unexplained: "nothing reaches 50 %", [UNKNOWN]: "no counter map",
  [NOT_IN_ANY_LAYER]: "the latency that no layer explains",
};
const boundOf = (row) => (row.layer === NOT_IN_ANY_LAYER ? row.layer : (row["bound by"] || UNKNOWN).replace("?", ""));
const colourOf = (bound) => BOUND_COLOURS[bound] || BOUND_COLOURS[UNKNOWN];

// A column has whole numbers, or all of its numbers have decimals.
function withDecimals(columns, rows) {
  return columns.map((each, place) => {
    const isWhole = rows.every((row) => !isNumber(row[place]) || Number.isInteger(row[place]));
    return { ...each, decimals: isWhole ? 0 : (each.decimals ?? 3) };
  });
}

function table(titled, rows, caption) {
  const columns = withDecimals(titled, rows);
  const head = element("tr", {}, ...columns.map(({ title, number }) =>
    element("th", { text: title, scope: "col", class: number ? "number" : "" })));
  const body = rows.map((row) => element("tr", {}, ...row.map((value, place) => cell(value, columns[place]))));
  const parts = [element("thead", {}, head), element("tbody", {}, ...body)];
  const made = element("table", caption ? { "aria-label": caption } : {}, ...parts);
  return element("div", { class: "scroll", tabindex: "0" }, made);
}

function cell(value, { number, decimals }) {
  if (value instanceof Node) return element("td", {}, value);
  if (number || isNumber(value)) return element("td", { text: numberText(value, decimals), class: "number" });
  const text = value === null ? UNKNOWN : String(value);
  return element("td", { text, class: text.length > LONG_TEXT ? "text" : "" });
}

function bar(share, colour) {
  const width = `${Math.max(0, Math.min(100, share || 0))}%`;
  return element("span", { class: "bar", role: "presentation" },
    element("i", { style: { width, background: colour } }));
}

function showHead() {
  const about = data.session;
  const started = new Date(about.started_us / US_PER_MS).toISOString().replace("T", " ").slice(0, 19);
  const facts = [`${started} UTC`, about.source, about.labels,
    about.sdk_version && `SDK ${about.sdk_version}`,
    about.counter_map && say("counter map {name}", { name: about.counter_map })];
  byId("facts").textContent = facts.filter(Boolean).join(" · ");
  byId("simulated").hidden = !data.simulated;
  byId("incomplete").hidden = !about.incomplete.length;
  byId("incomplete").textContent = say("INCOMPLETE: {why}", { why: about.incomplete.join("; ") });
  byId("made").textContent = `${say("Written by profagent {version}.", { version: data.profagent })} `
    + say("Charts: Apache ECharts 5.6.0, Apache License 2.0, © The Apache Software Foundation.");
  for (const section of document.querySelectorAll("main section:not([hidden])")) {
    byId("sections").append(element("a", { href: `#${section.id}`, text: section.querySelector("h2").textContent }));
  }
}

// Of several models each tile says whose it is.
const titled = (model, text) => (data.models.length > 1 ? `${model}: ${text}` : text);
const FROM = { call: "median by its calls", records: "median first begin to last end" };

function latencyTiles({ model, inferences, latency, latency_from: from, per_second: rate, gap_us: gap }) {
  const figures = `p95 ${usText(latency.p95)}, p99 ${usText(latency.p99)}`;
  const count = say("{count} inferences", { count: countText(inferences) });
  const about = from ? `${say(FROM[from])}; ${figures}; ${count}` : say("no time of it is known");
  return [[titled(model, say("Latency")), usText(latency.median), about],
    [titled(model, say("Inferences per second")), numberText(rate, 1),
      say("gap between them {time}", { time: usText(gap) })]];
}

function layersTile({ model, layers, recorded, of_layers: all }) {
  const counted = say(all === null ? "{count} layers recorded" : "{count} of {all} layers recorded",
    { count: countText(recorded), all: countText(all) });
  return [titled(model, say("Layers")), durationText(layers.median), `${say("median of their sum")}; ${counted}`];
}

function showTiles() {
  const tiles = data.models.flatMap((model) => [...latencyTiles(model), layersTile(model)]);
  const units = {};
  const names = { AA_CORE: "NPU", AA_CPU: "CPU" };
  for (const row of data.stats.segment.rows) {
    const name = names[row.unit] || say(row.segment);
    units[name] = (units[name] || 0) + weighted(row);
  }
  const { [say(NOT_IN_ANY_LAYER)]: rest, ...used } = units;
  const split = Object.entries(used).map(([name, share]) => `${name} ${numberText(share, 1)} %`);
  const left = rest === undefined ? "" : `; ${say(NOT_IN_ANY_LAYER)} ${numberText(rest, 1)} %`;
  if (split.length) tiles.push([say("Where the time goes"), split.join(", "), `${say("of an inference")}${left}`]);
  const first = data.ranked.find(({ layer }) => layer !== NOT_IN_ANY_LAYER);
  if (first) {
    const bound = first["bound by"] || UNKNOWN;
    tiles.push([say("Longest layer"), layerName(first),
      say("{share} %, bound by {bound}", { share: numberText(first.share, 1), bound: say(bound) })]);
  }
  const losses = Object.entries(data.session.losses).map(([reason, count]) => `${reason} x ${countText(count)}`);
  const counted = losses.length ? `${COUNTED}; ` : "";
  const sampled = say("inferences sampled: {sampled}", { sampled: data.session.sampled });
  tiles.push([say("Losses"), losses.join(", ") || say("none"), `${counted}${sampled}`]);
  if (data.session.coverage) {
    const gaps = data.session.coverage.split("; ").slice(1).join("; ");
    tiles.push([say("Covered"), data.session.covered, gaps || say("the board was followed all the time")]);
  }
  byId("tiles").append(...tiles.map(([name, value, more]) => element("div", {},
    element("dt", { text: name }), element("dd", { text: value }, element("small", { text: more })))));
}

function evidence(finding) {
  const first = finding.evidence[0];
  // What it could bring stands first: on a phone the last columns are out of sight.
  const names = Object.keys(first).filter((name) => finding.evidence.some((row) => row[name] !== null))
    .sort((one, other) => (other === "gain_us") - (one === "gain_us"));
  const areNumbers = (name) => finding.evidence.every((row) => row[name] === null || isNumber(row[name]));
  const columns = names.map((name) => ({ title: name, number: areNumbers(name) }));
  const rows = finding.evidence.map((row) => names.map((name) => row[name]));
  return table(columns, rows, say("Evidence of {rule}", { rule: finding.rule }));
}

const isShare = (share) => share !== null && share <= 100;

function findingCard(finding, place) {
  const doubt = finding.likely ? element("span", { class: "source", text: say("rests on uncertain counters") }) : null;
  const isKnown = finding.gain_us !== null;
  const per = say(finding.per === "step" ? "a step" : "an inference");
  const most = say(isShare(finding.share) ? "at most, {share} % of {per}" : "at most {per}",
    { share: numberText(finding.share, 1), per });
  const gain = [element("b", { text: isKnown ? durationText(finding.gain_us) : UNKNOWN }),
    element("span", { text: isKnown ? most : finding.gain })];
  const isCut = finding.all_rows > finding.evidence.length;
  const rows = say(isCut ? "Evidence: {count} of {all} rows" : "Evidence: {count} rows",
    { count: countText(finding.evidence.length), all: countText(finding.all_rows) });
  const details = element("details", place === 0 ? { open: "" } : {},
    element("summary", { text: rows }), evidence(finding));
  return element("li", { class: "card", "data-rule": finding.rule },
    element("h3", {}, element("span", { class: `badge ${finding.severity}`, text: finding.grade }),
      element("span", { text: (finding.model ? `${finding.model}: ` : "") + finding.title }), doubt),
    element("div", { class: "gain" }, ...gain),
    written("p", {}, finding.finding),
    written("p", { class: "try" }, finding.advice),
    details,
    element("p", { class: "source", text: `${say("Rule {rule}.", { rule: finding.rule })} ${finding.manual}` }));
}

function showAdvice() {
  if (!data.advice) return;
  byId("findings").append(...data.advice.findings.map(findingCard));
  const { nothing_found: quiet, cannot_tell: untold } = data.advice;
  const lines = [say("Nothing found by: {rules}", { rules: quiet.join(", ") || say("none") }),
    ...untold.map(({ rule, why }) => `${UNKNOWN}: ${rule}: ${why}`)];
  byId("untold").append(
    element("summary", { text: say("{quiet} rules found nothing, {untold} lack data to tell",
      { quiet: quiet.length, untold: untold.length }) }),
    ...lines.map((text) => element("div", { text })));
}

const UNIT_COLOURS = { AA_CORE: "#4f9dde", AA_CPU: "#e08a2e" };

function showWhere() {
  const segments = data.stats.segment.rows;
  const names = { AA_CORE: "NPU", AA_CPU: "CPU" };
  const mean = { title: `${say("mean")}(${data.stats.segment.unit})`, number: true };
  const share = { title: `${say("share")}(%)`, number: true, decimals: 2 };
  byId("segments").append(element("h3", { text: say("Segments of the network") }), tableOrNone(
    [{ title: say("model") }, { title: say("segment") }, { title: say("unit") }, mean, share, { title: "" }],
    segments.map((row) => [row.model, say(row.segment), names[row.unit] || "–", row.mean, row.share,
      bar(row.share, UNIT_COLOURS[row.unit] || BOUND_COLOURS[NOT_IN_ANY_LAYER])]), say("No segment was recorded.")));
  const calls = data.stats.api.rows;
  byId("calls").append(element("h3", { text: say("Calls of the runtime's API") }), tableOrNone(
    [{ title: say("function") }, { title: say("count"), number: true },
      { title: `${say("mean")}(us)`, number: true, decimals: 1 }, share],
    calls.map((row) => [row.function, row.count, row.mean, row.share]), say("No call was recorded.")));
}

const PART_COLOURS = { stage: UNIT_COLOURS.AA_CORE, wait: UNIT_COLOURS.AA_CPU };
const JOINED = { spans: "Joined by order, as no mark has a frame's number: one ends where its first stage comes again.",
  calls: "Joined by order, as the program marks nothing: one ends where its first model comes again." };

function showFrames() {
  const { frames, rows } = data.stats.frame;
  if (!frames.length) return;
  byId("frames").hidden = false;
  const number = (text) => ({ title: text, number: true });
  const times = ["median", "p95", "p99", "max"];
  const whole = table([{ title: say("process") }, number(say("count")),
    ...times.map((name) => number(`${say(name)}(us)`)), number(`${say("age at the end")}(us)`),
    number(say("per_second")), number(say("dropped")), number(say("lost with marks"))],
  frames.map((each) => [String(each.process), each.frames, ...times.map((name) => each.latency[name]),
    each.age.median, each.per_second, each.joined_by === "number" ? each.missing : null, each.lost]));
  const parts = table([{ title: say("part") }, { title: say("kind") }, number(say("count")),
    ...["mean", ...times].map((name) => number(`${say(name)}(us)`)),
    { title: `${say("share")}(%)`, number: true, decimals: 2 }, { title: "" }],
  rows.map((row) => [row.part, say(row.kind), row.count, row.mean, ...times.map((name) => row[name]), row.share,
    bar(row.share, PART_COLOURS[row.kind])]));
  const rule = say("Stages and waits sum to the frame, from its first begin to its last end.");
  const joined = JOINED[frames[0].joined_by];
  const undivided = frames.filter((each) => each.undivided && each.undivided < each.frames).map((each) =>
    say("In {undivided} of {frames} frames a call has no records and counts as a whole: its parts are those of the rest.",
      { undivided: countText(each.undivided), frames: countText(each.frames) }));
  const rules = [...(joined ? [say(joined)] : []), rule, ...undivided];
  byId("framed").append(whole, parts, element("p", { class: "rule", text: rules.join(" ") }));
}

function tableOrNone(columns, rows, none) {
  return rows.length ? table(columns, rows) : element("p", { class: "none", text: none });
}

function showBounds() {
  const shares = {};
  for (const row of data.ranked) shares[boundOf(row)] = (shares[boundOf(row)] || 0) + weighted(row);
  const sorted = Object.entries(shares).sort((one, other) => other[1] - one[1]);
  byId("bounds").append(
    element("div", { class: "stack", role: "presentation" }, ...sorted.map(([bound, share]) =>
      element("i", { style: { width: `${share}%`, background: colourOf(bound) } }))),
    element("ul", { class: "legend" }, ...sorted.map(([bound, share]) => element("li", {},
      element("i", { style: { background: colourOf(bound) } }), element("b", { text: say(bound) }),
      ` ${numberText(share, 1)} %, ${say(BOUND_MEANINGS[bound] || UNKNOWN)}`))));
}

function showComparison() {
  const found = data.comparison;
  if (!found) return;
  byId("comparison").hidden = false;
  const rows = found.models.flatMap((model) => model.layers.flatMap((layer) => {
    const names = (side) => layer[side].map((each) => each.name).join(" | ");
    const change = layer.change;
    if (layer.what === "same" && !(change && change.significant)) return [];
    return [[model.model, names("base") || "–", names("new") || "–", say(layer.what), change && change.base.median,
      change && change.new.median, change && change.difference, change && change.percent, change && change.p]];
  }));
  const totals = found.models.map((each) => {
    const change = each.latency || each.sum_of_layers;
    return [`${each.model}: ${say(each.latency ? "latency" : "sum of layers")}`, change.base.median, change.new.median,
      change.difference, change.percent,
      say(change.significant ? "beyond the noise" : change.p === null ? "cannot tell" : "within noise or floor")];
  });
  const us = (title) => ({ title, number: true });
  const changes = [us("BASE(us)"), us("NEW(us)"), us(`${say("change")}(us)`),
    { ...us(`${say("change")}(%)`), decimals: 2 }];
  const sides = { base: found.base.called, made: found.new.called };
  const titles = ["model", "BASE", "NEW", "what"].map((title) => ({ title: say(title) }));
  byId("compared").append(element("p", { class: "sentence", id: "compared-verdict", text: found.verdict }),
    element("p", { class: "rule", text: say("BASE is {base}, NEW is {made}", sides) }),
    ...found.comparability.differences.map((each) => element("p", { class: "rule", text: `${each.code}: ${each.text}` })),
    ...found.remarks.map((line) => element("p", { class: "rule", text: line })),
    table([{ title: say("model") }, ...changes, { title: "" }], totals),
    element("details", {},
      element("summary", { text: say("{count} layers changed", { count: countText(rows.length) }) }),
      table([...titles, ...changes, { ...us("p"), decimals: 4 }], rows)));
}

// Charts come as SVG whose names are escaped.
function showHistory() {
  byId("history").hidden = !data.history.length;
  byId("nights").append(...data.history.flatMap(({ charts, lines }) => [
    ...charts.flatMap(([title, chart]) => [element("h3", { text: title }),
      new DOMParser().parseFromString(chart, "image/svg+xml").documentElement]),
    element("ul", { class: "caveats" }, ...lines.map((text) => element("li", { text })))]));
}

function showObjectives() {
  byId("slo").hidden = !data.slo.length;
  byId("judged").append(element("ul", { class: "caveats" }, ...data.slo.flatMap(({ verdict }, place) =>
    data.slo_lines[place].map((text) => element("li", { text, class: verdict === "exceeded" ? "high" : "" })))));
}

function showIncidents() {
  const { all, rows, lines } = data.incidents;
  if (!all) return;
  byId("incidents").hidden = false;
  const titles = ["incident", "time (UTC)", "rule", "value", "bound", "model", "culprit", "excess", "kept"];
  byId("found").append(...lines.map((text) => element("p", { class: "rule", text })),
    table(titles.map((title) => ({ title: say(title) })), rows));
  if (rows.length < all) {
    byId("found").append(element("p", { class: "rule",
      text: say("{shown} of {all} rows", { shown: countText(rows.length), all: countText(all) }) }));
  }
}

function showCaveats() {
  const { ledger, ledger_rows: all } = data.session;
  const counts = { shown: countText(ledger.length), all: countText(all), counted: COUNTED };
  const summary = say(ledger.length < all ? "Ledger: the first {shown} of {all} rows; counts are of {counted}"
    : "Ledger: {all} rows; counts are of {counted}", counts);
  byId("caveats").append(
    element("ul", { class: "caveats" }, ...data.caveats.map((text) => element("li", { text }))),
    ledger.length ? element("details", {}, element("summary", { text: summary }),
      table([...["grade", "reason", "meaning", "what", "file"].map((title) => ({ title: say(title) })),
        { title: say("count"), number: true }],
      ledger.map((row) => [say(row.grade), row.reason, row.meaning, row.detail, row.log || row.job || "–",
        row.count])))
      : element("p", { class: "none", text: say("The ledger is empty.") }));
}

// The table of all figures: what `profagent stats --json` has, by what the reader chooses.

// Without a column the rows are as `stats` orders them.
const chosen = { by: "layer", column: "", falling: true, words: "" };

function showFigures() {
  const { rows, units, left_out: leftOut } = data.stats[chosen.by];
  const names = rows.length ? inSight(Object.keys(rows[0])) : [];
  const words = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = rows.filter((row) => {
    const text = names.map((name) => (isNumber(row[name]) ? "" : String(row[name]))).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const direction = chosen.falling ? -1 : 1;
  const sorted = chosen.column === "" ? fitting
    : [...fitting].sort((one, other) => direction * compared(one[chosen.column], other[chosen.column]));
  const columns = names.map((name) => column(name, rows, units));
  // The rest of an inference, and what nothing explains, are our words in a table of the board's names.
  const shown = (value) => ([NOT_IN_ANY_LAYER, "unexplained"].includes(value) ? say(value) : value);
  const made = table(columns, sorted.map((row) => names.map((name) => shown(row[name]))));
  const headings = made.querySelectorAll("th");
  names.forEach((name, place) => headings[place].replaceChildren(sorter(name, headings[place])));
  byId("figures").replaceChildren(made.firstChild);
  byId("count").textContent = say("{shown} of {all} rows",
    { shown: countText(sorted.length), all: countText(rows.length) });
  const warmUp = leftOut.filter(({ left_out: count }) => count)
    .map((each) => say("Left out as warm-up: {left_out} of {inferences} inferences of {model}.", each));
  byId("table-rule").textContent = warmUp.join(" ");
}

// Share and bound stand before the figures, of which a narrow window shows the first ones.
const FIRST_FIGURES = ["share", "bound by"];

function inSight(names) {
  const chosenNames = FIRST_FIGURES.filter((name) => names.includes(name));
  const others = names.filter((name) => !chosenNames.includes(name));
  const place = others.indexOf("count");
  return [...others.slice(0, place), ...chosenNames, ...others.slice(place)];
}

function column(name, rows, units) {
  const number = rows.some((row) => isNumber(row[name]));
  const title = name in units ? `${say(name)}(${units[name]})` : say(name);
  return { title, number, decimals: name === "share" ? 2 : 3 };
}

function sorter(name, heading) {
  const isChosen = chosen.column === name;
  if (isChosen) heading.setAttribute("aria-sort", chosen.falling ? "descending" : "ascending");
  const mark = isChosen ? (chosen.falling ? " ↓" : " ↑") : "";
  const made = element("button", { type: "button", text: heading.textContent + mark, "data-column": name });
  made.addEventListener("click", () => {
    chosen.falling = isChosen ? !chosen.falling : true;
    chosen.column = name;
    showFigures();
    document.querySelector(`[data-column="${CSS.escape(name)}"]`).focus();
  });
  return made;
}

function compared(one, other) {
  if (isNumber(one) && isNumber(other)) return one - other;
  return String(one ?? "").localeCompare(String(other ?? ""));
}

function prepareTable() {
  byId("by").append(...Object.entries(data.stats).filter(([, each]) => each.rows.length)
    .map(([by]) => element("option", { value: by, text: say(by) })));
  byId("by").addEventListener("change", (event) => {
    Object.assign(chosen, { by: event.target.value, column: "", falling: true });
    showFigures();
  });
  byId("search").addEventListener("input", (event) => { chosen.words = event.target.value; showFigures(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.matches("input, select")) {
      event.preventDefault();
      byId("search").focus();
    }
  });
  showFigures();
}

showObjectives();
showComparison();
showFrames();
showHistory();
showIncidents();
showHead();
showTiles();
showAdvice();
showWhere();
showBounds();
showCaveats();
prepareTable();
