// All cases: a table with search, filters and a choice of metrics.
const filters = [
  ["verdict", "Verdict", (one) => one.verdict],
  ["api", "API", (one) => one.api],
  ["direction", "Direction", (one) => one.direction],
  ["dtype", "Dtype", (one) => one.dtype],
  ["device", "Device", (one) => one.device],
  ["kind", "Reason", (one) => one.kind],
  ["group", "Group", (one) => one.group, (group) => names.groups[group]],
];
const inUse = columns.filter(([name]) => cases.some((one) => metric(one, name) !== null));
const SHARE_WORDS = "Share of limit: the most that a metric of the case takes of its limit; above 100 % the case fails.";
const FIRST_METRICS = ["limit_share", "noise_ratio", "max_ulp", "max_rel", "time_us"];

class CasesView {
  constructor() {
    this.name = "Cases";
    this.chosen = new Set(inUse.map(([name]) => name).filter((name) => FIRST_METRICS.includes(name)));
    if (this.chosen.size < 3) inUse.slice(0, 5).forEach(([name]) => this.chosen.add(name));
    this.table = new VirtualTable("Cases", this.columns(), { open: openCase });
    this.search = h("input", { type: "search", id: "search", placeholder: "name, reason or module", oninput: () => this.changed() });
    this.order = options(h("select", { id: "order", onchange: () => this.changed() }), [["calls", "order of calls"]], "worst first");
    this.selects = new Map();
    for (const [key, label, value, words] of filters) {
      const counts = new Map();
      for (const one of cases) counts.set(value(one), (counts.get(value(one)) || 0) + 1);
      if (counts.size < 2) continue;
      const choices = [...counts].filter(([choice]) => choice).sort((one, other) => (one[0] < other[0] ? -1 : 1)).map(([choice, number]) => [choice, words ? words(choice) : `${choice} (${number.toLocaleString("en-US")})`]);
      const select = options(h("select", { id: `filter-${key}`, onchange: () => this.changed() }), choices, "all");
      this.selects.set(key, [select, label, value]);
    }
    this.count = h("p", { role: "status", class: "small quiet", id: "count" });
    this.exported = h("div");
    this.element = h("section", { "aria-label": "Cases", class: "cases" }, this.toolbar(), this.exported, h("div", { class: "told" }, this.count, h("p", { class: "quiet small share" }, SHARE_WORDS)), this.table.element);
    this.apply();
  }

  columns() {
    const words = [
      { key: "name", label: "Case", kind: "name", value: (one) => one.name },
      { key: "verdict", label: "Verdict", kind: "word", value: (one) => SEVERITY[one.verdict], cell: (one) => verdictMark(one.verdict) },
      ...(names.dtypes.length > 1 ? [{ key: "dtype", label: "Dtype", kind: "dtype", value: (one) => one.dtype }] : []),
      ...(names.devices.length > 1 ? [{ key: "device", label: "Device", kind: "word", value: (one) => one.device }] : []),
    ];
    const why = [
      { key: "why", label: "Why", kind: "why", value: (one) => [one.cause && `looks like ${one.cause}`, one.reason].filter(Boolean).join("; ") },
      ...(names.places.some(Boolean) ? [{ key: "place", label: "Called at", kind: "place", value: (one) => one.line }] : []),
    ];
    const figures = inUse.filter(([name]) => this.chosen.has(name)).map(([name, label]) => ({ key: name, label, kind: "figure", value: (one) => metric(one, name), ...(name === "limit_share" ? { cell: shareCell, description: SHARE_WORDS } : {}) }));
    const line = data("probe-history") ? [{ key: "runs", label: "Over runs", kind: "line", cell: sparklineOf }] : [];
    // The share stands beside the verdict, also where a screen shows no more.
    const first = figures.filter((column) => column.description);
    return [...words, ...first, ...why, ...figures.filter((column) => !column.description), ...line];
  }

  toolbar() {
    const boxes = inUse.map(([name, label]) => h("label", {}, h("input", { type: "checkbox", checked: this.chosen.has(name), onchange: (event) => this.choose(name, event.target.checked) }), label));
    const chooser = h("details", { class: "chooser", onkeydown: (event) => { if (event.key === "Escape") chooser.open = false; } }, h("summary", {}, "Metrics"), h("fieldset", {}, h("legend", {}, "Columns to show and sort by"), ...boxes));
    const selects = [...this.selects.values()].map(([select, label]) => labelled(label, select));
    const more = h("button", { type: "button", class: "unfold", "aria-expanded": "false", onclick: () => more.setAttribute("aria-expanded", String(bar.classList.toggle("open"))) }, "Filters");
    const bar = h("div", { class: "toolbar", role: "search" }, labelled("Search", this.search), labelled("Order", this.order), more, ...selects, chooser,
      h("button", { type: "button", onclick: () => this.clear() }, "Clear"),
      h("button", { type: "button", onclick: () => saveCsv(this.table.shown) }, "Save as CSV"),
      h("button", { type: "button", onclick: () => showText(this.exported, this.table.shown, this.count.textContent) }, "Text for an issue"));
    return bar;
  }

  choose(name, checked) {
    if (checked) this.chosen.add(name);
    else this.chosen.delete(name);
    this.table.setColumns(this.columns());
  }

  clear() {
    this.search.value = this.order.value = "";
    for (const [select] of this.selects.values()) select.value = "";
    this.changed();
  }

  only(key, value) {
    this.clear();
    if (this.selects.has(key)) this.selects.get(key)[0].value = value;
    this.changed();
  }

  // The controls by their names in the address.
  controls() {
    return [["search", this.search], ["order", this.order], ...[...this.selects].map(([key, [select]]) => [key, select])];
  }

  follow(asked) {
    for (const [name, control] of this.controls()) {
      control.value = asked.get(name) || "";
      if (control.selectedIndex === -1) control.value = "";
    }
    this.apply();
  }

  changed() {
    remember(Object.fromEntries(this.controls().map(([name, control]) => [name, control.value])));
    this.apply();
  }

  apply() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = [...this.selects.values()].filter(([select]) => select.value).map(([select, , value]) => [value, select.value]);
    const asked = words.length || wanted.length;
    let left = 0;
    const initialises = (one) => one.kind === "initialises the model" && one.verdict === "pass";
    const hides = !asked && !cases.every(initialises);
    const found = cases.filter((one) => {
      if (hides && initialises(one)) return void left++;
      if (wanted.some(([value, choice]) => value(one) !== choice)) return false;
      if (!words.length) return true;
      one.text = one.text || `${one.label}::${one.name} ${one.cause} ${one.reason} ${one.line} ${one.module} ${one.kind}`.toLowerCase();
      return words.every((word) => one.text.includes(word));
    });
    this.exported.replaceChildren();
    this.table.setItems(this.order.value === "calls" ? inOrderOfCalls(found) : found.sort(byBadness));
    this.count.textContent = found.length === cases.length ? count(cases.length, "case") : `${found.length.toLocaleString("en-US")} of ${count(cases.length, "case")}`;
    if (left) this.count.textContent += `; ${count(left, "passing case")} of calls that initialise the model left out`;
  }

  appear() {
    this.table.draw(true);
  }
}

function shareCell(one) {
  const share = metric(one, "limit_share");
  if (share === null) return "";
  return h("span", { class: share > 1 || Number.isNaN(share) ? "over error" : null }, shownShare(share));
}
