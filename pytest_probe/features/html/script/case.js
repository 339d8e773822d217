// One case in a dialog: all that is known of it.
const dialog = h("dialog", { "aria-labelledby": "case-name", onclose: () => closed() });
let openedFrom = null;

function closed() {
  document.body.classList.remove("case-open");
  remember({ case: "" });
  if (openedFrom) openedFrom.focus(true);
}

const full = (one) => (one.label ? `${one.label}::${one.name}` : one.name);

// from: the table that it was opened from, null for a link.
function openCase(one, from) {
  openedFrom = from;
  const details = data("probe-details")[one.row];
  const step = (rows) => () => {
    const next = from && from.step(rows);
    if (next) openCase(next, from);
  };
  const steps = from
    ? [h("button", { type: "button", onclick: step(-1), "aria-label": "Previous case" }, "↑"), h("button", { type: "button", onclick: step(1), "aria-label": "Next case" }, "↓")]
    : [];
  dialog.replaceChildren(
    h("div", { class: "case-head" }, verdictMark(one.verdict), h("h2", { id: "case-name", tabindex: -1 }, breakable(full(one))), ...steps,
      h("button", { type: "button", onclick: () => dialog.close() }, "Close")),
    h("div", { class: "case-body" }, ...caseParts(one, details)),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  document.body.classList.add("case-open");
  remember({ case: one.row });
  dialog.querySelector("#case-name").focus({ preventScroll: true });
}

function caseParts(one, details) {
  const facts = [["API", one.api], ["direction", one.direction], ["dtype", one.dtype], ["device", one.device], ["module", one.module], ["kind", one.kind], ["standard", details && details.standard], ["place in the dump", one.place >= 0 ? one.place : ""]];
  const found = [h("p", { class: "quiet small" }, facts.filter(([, value]) => value !== "" && value !== null && value !== undefined).map(([name, value]) => `${name}: ${value}`).join("  ·  "))];
  const reason = (details && details.reason) || one.reason;
  const numbers = one.cause && reason ? reason.replace(`; ${one.cause}`, "") : reason;
  if (reason) found.push(h("div", { class: `reason ${one.verdict}` }, h("span", {}, one.cause ? h("strong", {}, `looks like ${one.cause}\n`) : null, numbers)));
  if (details && details.gate && details.gate.reason) found.push(h("p", {}, `beside the baseline: ${details.gate.change}: ${details.gate.reason}`));
  found.push(...pairParts(one));
  const line = sparklineOf(one);
  if (line) found.push(h("h3", {}, `Over ${count(data("probe-history").runs.length, "run")}: ${data("probe-history").metric.replace("_", " ")}`), line);
  if (!details) {
    found.push(h("h3", {}, "Metrics"), metricTable(inUse.map(([name]) => [name, metric(one, name), null])),
      h("p", { class: "quiet" }, "This page has the details of errors, of warnings and of the 200 worst others. results.jsonl has the metrics of this case."));
    return found;
  }
  const rest = details.details || {};
  if (rest.command) found.push(commandPart(rest.command));
  found.push(...plotParts(details, rest.plots));
  found.push(...operandParts(rest.operands || []));
  if (details.answers) found.push(h("h3", {}, "Questions"), h("table", { class: "pair" }, h("tbody", {}, ...details.answers.map(([question, answer]) => h("tr", {}, h("th", { scope: "row" }, question), h("td", {}, answer))))));
  details.outputs.forEach((output) => found.push(...outputParts(output, reason === `${output.name}: ${output.reason}`, (rest.digits || {})[output.name])));
  if (details.left_out) found.push(h("p", { class: "quiet" }, `and ${count(details.left_out, "more output")}`));
  if (rest.arguments) found.push(h("h3", {}, "Arguments"), wide(tableOf(["name", "shape", "dtype", "value or range"], rest.arguments.map((row) => [row.name, row.shape ? `[${row.shape.join(", ")}]` : "", row.dtype, row.value]))));
  if (rest.stack) found.push(h("h3", {}, "Called from"), stackPart(rest.stack));
  if (details.notes.length) found.push(h("h3", {}, "Notes"), h("ul", {}, ...details.notes.map((note) => h("li", {}, note))));
  found.push(...takenParts(details));
  return found;
}

function commandPart(command) {
  const told = h("span", { role: "status", class: "quiet" });
  const code = h("pre", { tabindex: 0, "aria-label": "Command that runs the case again" }, command);
  return h("div", {}, h("h3", {}, "Run it again"), h("div", { class: "command" }, code, h("button", { type: "button", onclick: () => copyText(code, command, told) }, "Copy"), told));
}

// Into the clipboard; where a page may not write there, the user copies what is selected.
function copyText(element, text, told) {
  const select = () => {
    if (element.select) element.select();
    else getSelection().selectAllChildren(element);
    told.textContent = "selected: press Ctrl-C";
  };
  select();
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => (told.textContent = "copied"), select);
}

// Numbers that are all right, and a single one, say more than their plots.
function plotParts(details, plots) {
  if (!plots) return [];
  const output = details.outputs.find((one) => one.name === plots.output) || { metrics: {} };
  if (isExact(output, plots)) return [h("p", { class: "quiet" }, `No plots: all elements of ${plots.output} are those of the reference.`)];
  if (plots.error_map && plots.error_map.cells.length === 1) return [];
  const limit = (name, label) => ({ value: asNumber(output.metrics[name]) || NaN, label });
  const integers = /^(u?int|bool)/.test(output.dtype || "");
  const found = [];
  if (plots.noise_ratios) found.push(histogramChart("Noise ratio", plots.noise_ratios, [limit("noise_ratio_limit", "limit"), limit("noise_rms_limit", "limit of the RMS")], "noise ratio of an element"));
  if (plots.ulps) found.push(histogramChart("Distance in ULP", plots.ulps, [limit("max_ulp_limit", "limit"), { value: 0.5, label: "half an ULP", harmless: true }], "ULP from the reference"));
  if (plots.points && plots.points.expected.length) found.push(scatterChart(plots.points));
  if (plots.error_map) found.push(mapChart(plots.error_map, integers ? "" : "ULP"));
  return [h("h3", {}, `Plots of ${plots.output}`), h("div", { class: "plots" }, ...found)];
}

// What codes and scales stand for together.
function operandParts(operands) {
  if (!operands.length) return [];
  const plots = operands.map((one) => histogramChart(`${one.name} times its scales`, one.numbers, [], "magnitude of a number"));
  return [h("h3", {}, "Operands"), h("div", { class: "plots" }, ...plots), ...operands.map((one) => h("p", {}, `${one.name}: ${one.blocks}`))];
}

function isExact(output, plots) {
  if (output.verdict && output.verdict !== "pass") return false;
  const errors = plots.ulps ? plots.ulps.counts.length + (plots.ulps.large || 0) : 0;
  return !errors && (!plots.points || !plots.points.more.some(Boolean)) && (!plots.error_map || !/[^0]/.test(plots.error_map.cells));
}

// told: the reason and the cause stand above already; digits: how many are right.
function outputParts(output, told, digits) {
  const limits = new Set(Object.keys(output.metrics).filter((name) => name.endsWith("_limit")));
  const rows = Object.entries(output.metrics).filter(([name]) => !limits.has(name)).map(([name, value]) => [name, typeof value === "string" && Number.isNaN(Number(value)) && !["nan", "inf", "-inf"].includes(value) ? value : asNumber(value), asNumber(output.metrics[`${name}_limit`])]);
  const found = [h("h3", {}, output.name, " ", verdictMark(output.verdict)), h("p", { class: "quiet small" }, `[${output.shape.join(", ")}] ${output.dtype}, judged by ${output.standard}`)];
  if (output.reason && output.verdict !== "pass" && !told) found.push(h("div", { class: `reason ${output.verdict}` }, h("span", {}, output.reason)));
  if (output.diagnosis) found.push(diagnosisPart(output.diagnosis, told));
  if (digits) found.push(h("p", {}, digits));
  if (rows.length) found.push(metricTable(rows));
  if (output.detects) found.push(h("p", {}, `would have been found: ${output.detects}`));
  if (output.worst) found.push(h("h3", {}, "Worst elements"), wide(tableOf(["index", "actual", "expected", "ULP", "noise ratio"], output.worst.map(([index, actual, expected, ulp, ratio]) => [`[${index.join(", ")}]`, String(actual), String(expected), shown(asNumber(ulp)), shown(asNumber(ratio))]))));
  return found;
}

function diagnosisPart(found, told) {
  const rows = [["wrong", `${found.wrong.toLocaleString("en-US")} of ${found.size.toLocaleString("en-US")} elements`], ["where", told ? "" : found.where], ["looks like", told ? "" : found.cause], ["errors", found.errors]];
  for (const [name, [actual, expected]] of Object.entries(found.not_finite)) rows.push([name, `${actual} on the device, ${expected} in the reference`]);
  return h("table", {}, h("tbody", {}, ...rows.filter(([, value]) => value).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))));
}

function metricTable(rows) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined);
  const cells = ([name, value, limit]) => {
    const over = limit !== null && !(value <= limit);
    return h("tr", {}, h("th", { scope: "row" }, labelOf.get(name) || name.replaceAll("_", " ")), h("td", { class: over ? "figure over error" : "figure" }, typeof value === "string" ? value : shown(value)), h("td", { class: "figure" }, limit === null ? "" : shown(limit)));
  };
  return h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "metric"), h("th", { scope: "col", class: "figure" }, "value"), h("th", { scope: "col", class: "figure" }, "limit"))), h("tbody", {}, ...known.map(cells)));
}

const wide = (table) => h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" }, table);

function tableOf(heads, rows) {
  return h("table", {}, h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell))))));
}

function stackPart(frames) {
  const lines = frames.flatMap((frame, place) => [h("span", { class: place ? null : "own" }, `${frame.file}:${frame.line} in ${frame.function}\n    ${frame.code}`), place < frames.length - 1 ? "\n" : ""]);
  return h("pre", { tabindex: 0, "aria-label": "Stack, the innermost line first" }, ...lines);
}

function takenParts(details) {
  const found = [];
  for (const [name, heading] of [["time", "Time"], ["memory", "Memory"]]) {
    const taken = details[name];
    if (!taken) continue;
    const rows = Object.entries(taken).flatMap(([key, value]) => (value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value).map(([inner, one]) => [`${key} ${inner}`, one]) : [[key, value]]));
    found.push(h("h3", {}, heading), wide(tableOf(["what", "value"], rows.filter(([, value]) => value !== "" && value !== null).map(([key, value]) => [key.replaceAll("_", " "), typeof value === "number" ? shown(value) : Array.isArray(value) ? JSON.stringify(value) : String(value)]))));
  }
  return found;
}

function sparklineOf(one) {
  const lines = data("probe-history");
  const letters = lines && lines.lines[one.row];
  return letters && letters.trim().length > 1 ? sparkline(letters, lines.metric.replace("_", " ")) : null;
}
