// This run beside another: what moved, and what is on one side only.
class RunsView {
  constructor(found) {
    this.name = "Two runs";
    this.found = found;
    const heading = { benchmark: "Beside the benchmark", baseline: "Beside the baseline", run: "Beside" }[found.kind];
    const parts = [h("h2", {}, `${heading} ${found.name}`), ...found.notes.map((note) => h("p", {}, note))];
    if (found.alike) parts.push(...this.moves());
    parts.push(...this.sides());
    this.element = h("section", { "aria-label": "Two runs" }, ...parts);
  }

  moves() {
    const { found } = this;
    const words = `${count(found.common, "case")} on both sides; ${found.moved.toLocaleString("en-US")} moved, or changed ${found.moved === 1 ? "its verdict" : "their verdicts"}`;
    const metrics = found.metrics.filter((_, place) => found.moves.some((move) => move[2 + place] !== "" && move[2 + found.metrics.length + place] !== ""));
    this.select = options(h("select", { onchange: () => this.choose() }), metrics.slice(1).map((name) => [name, labelOf.get(name) || name]), labelOf.get(metrics[0]) || metrics[0] || "no metric");
    this.metrics = metrics;
    this.chart = h("div");
    this.table = new VirtualTable("Cases that moved", this.columns(), { open: (entry, table) => openCase(entry.one, { focus: (scroll) => table.focus(scroll), step: (rows) => { const next = table.step(rows); return next && next.one; } }), short: true });
    this.choose();
    return [h("p", {}, `${words}${found.moved > found.moves.length ? `; the ${found.moves.length} that moved most are shown` : ""}.`), metrics.length ? h("div", { class: "toolbar" }, labelled("Metric", this.select)) : null, this.chart, found.moves.length ? this.table.element : null];
  }

  columns() {
    return [
      { key: "name", label: "Case", kind: "name", value: (entry) => entry.one.name },
      { key: "verdict", label: "Verdict", kind: "pair", value: (entry) => 10 * SEVERITY[entry.one.verdict] - SEVERITY[entry.was], cell: (entry) => h("span", {}, entry.was === entry.one.verdict ? null : [verdictMark(entry.was), " → "], verdictMark(entry.one.verdict)) },
      { key: "before", label: "Before", kind: "figure", value: (entry) => entry.before },
      { key: "now", label: "Now", kind: "figure", value: (entry) => entry.now },
      { key: "factor", label: "Factor", kind: "figure", value: (entry) => entry.factor },
    ];
  }

  choose() {
    const { found } = this;
    const name = this.select.value || this.metrics[0];
    const place = found.metrics.indexOf(name);
    const entries = found.moves.map((move) => {
      const [before, now] = [asNumber(move[2 + place]), asNumber(move[2 + found.metrics.length + place])];
      const factor = before === null || now === null ? null : before === now ? 1 : before ? now / before : Infinity;
      return { one: cases[move[0]], was: move[1], before, now, factor };
    });
    const away = (entry) => (entry.factor === null ? -1 : entry.factor === 0 || !Number.isFinite(entry.factor) ? 1e9 : Math.abs(Math.log(entry.factor)));
    entries.sort((one, other) => (other.was !== other.one.verdict) - (one.was !== one.one.verdict) || away(other) - away(one));
    this.table.setItems(entries);
    const drawn = entries.filter((entry) => entry.factor !== null && entry.factor !== 1 && (entry.before > 0 || entry.now > 0)).sort((one, other) => away(other) - away(one)).slice(0, 60);
    const chart = drawn.length ? slopeChart(drawn.map((entry) => ({ name: entry.one.name, before: entry.before, now: entry.now })), labelOf.get(name) || name) : null;
    this.chart.replaceChildren(...(chart ? [chart] : []));
  }

  sides() {
    const { found } = this;
    const parts = [];
    if (found.only_here) parts.push(...this.list(`Only in this run: ${count(found.only_here, "case")}`, found.here.map((row) => [cases[row].name, cases[row].verdict, metric(cases[row], "noise_ratio"), metric(cases[row], "max_ulp")])));
    if (found.only_there) parts.push(...this.list(`Only in ${found.name}: ${count(found.only_there, "case")}`, found.there.map(([id, verdict, ratio, ulp]) => [id, verdict, asNumber(ratio), asNumber(ulp)])));
    return parts;
  }

  list(heading, rows) {
    const word = (key, label, kind, place) => ({ key, label, kind, value: (row) => row[place] });
    const table = new VirtualTable(heading, [word("name", "Case", "name", 0), { ...word("verdict", "Verdict", "word", 1), cell: (row) => verdictMark(row[1]) }, word("ratio", "Noise ratio", "figure", 2), word("ulp", "Max ULP", "figure", 3)], { open: null, short: true });
    table.setItems(rows);
    (this.tables = this.tables || []).push(table);
    return [h("h3", {}, heading), table.element];
  }

  appear() {
    if (this.table) this.table.draw(true);
    (this.tables || []).forEach((table) => table.draw(true));
  }
}
