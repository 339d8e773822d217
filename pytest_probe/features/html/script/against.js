// Two sides: each call of A beside that of B, as a tree of modules or in the order of the run.
const FIRSTS = 20;

class PairTable extends VirtualTable {
  row(item, place) {
    const row = super.row(item, place);
    row.className = `${item.one ? "of-call" : "of-module"} is-${item.one ? item.one.pair.status : item.status}${place === this.active ? " selected" : ""}`;
    if (!this.flat) row.firstChild.style.setProperty("--depth", item.depth);
    if (!item.one) row.querySelector("button").setAttribute("aria-expanded", String(item.isOpen || this.allOpen));
    return row;
  }

  // Rows of long names are higher than others, so that the place of a row is not known before it is drawn.
  focus(scroll) {
    super.focus(scroll);
    const row = this.body.querySelector(".selected");
    if (scroll && row) row.scrollIntoView({ block: "nearest" });
  }
}

class AgainstView {
  constructor() {
    const all = cases.filter((one) => one.pair);
    const labels = [...new Set(all.map((one) => one.label))].sort(natural);
    this.runs = new Map(labels.map((label) => [label, pairsInOrder(all.filter((one) => one.label === label))]));
    this.hasNames = all.some((one) => one.pair.other);
    const firsts = labels.map((label) => [label, this.runs.get(label).find((point) => isSuspect(point.one))]).filter(([, first]) => first);
    this.label = firsts.length ? firsts[0][0] : labels[0];
    this.select = h("select", { id: "side", onchange: () => this.choose(this.select.value) }, ...labels.map((label) => h("option", { value: label }, label)));
    this.mode = options(h("select", { id: "shown-as", onchange: () => this.apply() }), [["calls", "calls in their order"]], "modules as a tree");
    if (!all.some((one) => one.module || ownPath(one))) this.mode.value = "calls";
    this.search = h("input", { type: "search", id: "pair-search", placeholder: "name, module, status", oninput: () => this.apply() });
    this.legend = h("ul", { class: "legend", "aria-label": "What pairs are" });
    this.chart = h("div", { class: "gaps" });
    this.count = h("p", { role: "status", class: "small quiet" });
    this.table = new PairTable("Pairs of A and B", [], { open: (item) => this.open(item) });
    this.element = h("section", { "aria-label": "A against B", class: "pairs" }, h("h2", {}, "A against B"), this.begins(firsts, labels.length), this.legend, this.chart,
      h("div", { class: "toolbar", role: "search" }, labelled("Search", this.search), labelled("Show", this.mode), labels.length > 1 ? labelled("Dump", this.select) : null),
      h("p", { class: "small quiet keys" }, ...this.keys()), this.count, this.table.element);
    document.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.chart);
    this.choose(this.label);
  }

  keys() {
    const key = (name) => h("kbd", {}, name);
    return ["Keys: ", key("↑"), " ", key("↓"), " select, ", key("→"), " ", key("←"), " open and close a module, ", key("Enter"), " shows the details, ", key("n"), " ", key("p"), " next and previous own error, ", key("/"), " searches."];
  }

  // The first own error of each dump, a link to its row and its reason.
  begins(firsts, dumps) {
    if (!firsts.length) return h("p", {}, "No call has an error of its own.");
    const words = (one) => [statusWords(one.pair), one.cause && `looks like ${one.cause}`, one.reason].filter(Boolean).join("; ");
    const item = ([label, { one }]) => h("li", {}, dumps > 1 ? `${label}: ` : null, h("button", { type: "button", class: "opener", onclick: () => this.reveal(label, one) }, breakable(one.name)), one.module ? ` in ${one.module}` : null, one.line ? ` at ${one.line}` : null, h("span", { class: "quiet small" }, ` ${words(one)}`));
    const more = firsts.length > FIRSTS ? h("li", { class: "quiet" }, `and ${count(firsts.length - FIRSTS, "more dump")}`) : null;
    return h("div", { class: "begins" }, h("strong", {}, "First own error"), h("ul", {}, ...firsts.slice(0, FIRSTS).map(item), more));
  }

  columns() {
    const gap = (item) => (item.one ? item.one.pair : item).gap;
    const found = [
      { label: "Call", kind: "name", cell: (item) => (item.one ? item.one.name : `${item.isOpen || this.table.allOpen ? "▾" : "▸"} ${item.name} (${item.total.toLocaleString("en-US")})`) },
      { label: "What it is", kind: "status", cell: (item) => (item.one ? statusMark(item.one.pair.status) : statusMark(item.status, item.own ? count(item.own, "own error") : undefined)) },
      { label: "Relative difference", kind: "figure", cell: (item) => shown(gap(item)) },
      { label: "Nearer to float64: noise ratios", kind: "noise", cell: (item) => (item.one ? noiseWords(item.one.pair) : "") },
    ];
    if (this.hasNames) found.push({ label: "In B", kind: "why", cell: (item) => (item.one ? item.one.pair.other : "") });
    if (this.mode.value) found.push({ label: "Module", kind: "why", cell: (item) => item.path });
    return found;
  }

  choose(label) {
    this.label = this.select.value = label;
    this.points = this.runs.get(label);
    this.root = moduleTree(this.points);
    const counts = new Map(GRAVEST.map((status) => [status, this.points.filter((point) => point.one.pair.status === status).length]));
    this.legend.replaceChildren(...GRAVEST.filter((status) => counts.get(status)).map((status) => h("li", { class: `is-${status}` }, statusMark(status), ` ${counts.get(status).toLocaleString("en-US")}`)));
    this.draw();
    this.apply();
  }

  wanted() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return (one) => {
      one.pairText ||= [one.name, one.module, one.pair.other, one.reason, one.line, STATUSES[one.pair.status][0]].join(" ").toLowerCase();
      return words.every((word) => one.pairText.includes(word));
    };
  }

  // Those that are found; of a tree without those in closed modules, unless all are asked for. A search opens modules.
  rows(all) {
    const wanted = this.wanted();
    if (this.mode.value) return this.points.filter((point) => wanted(point.one));
    return rowsOf(this.root, wanted, all || this.table.allOpen);
  }

  apply() {
    this.table.flat = this.mode.value !== "";
    this.table.allOpen = this.search.value.trim() !== "";
    this.table.setColumns(this.columns());
    this.table.setItems(this.rows(false));
    const wanted = this.wanted();
    const found = this.points.filter((point) => wanted(point.one)).length;
    this.count.textContent = found === this.points.length ? count(found, "pair") : `${found.toLocaleString("en-US")} of ${count(this.points.length, "pair")}`;
  }

  // Draws anew after a module was opened or closed, at the same row.
  refresh() {
    this.table.items = this.rows(false);
    this.table.sort();
  }

  open(item) {
    if (!item.one) {
      item.isOpen = !item.isOpen;
      return this.refresh();
    }
    const step = (rows) => {
      const next = this.table.step(rows);
      return next && !next.one ? step(rows) : next && next.one;
    };
    return openCase(item.one, { focus: (scroll) => this.table.focus(scroll), step });
  }

  reveal(label, one) {
    if (label !== this.label) this.choose(label);
    if (!this.wanted()(one)) {
      this.search.value = "";
      this.apply();
    }
    const point = this.points.find((each) => each.one === one);
    for (let node = point.above; node !== this.root; node = node.above) node.isOpen = true;
    this.refresh();
    this.table.active = this.table.shown.indexOf(point);
    this.table.focus(true);
  }

  // To the next own error behind the selected row (1), or to the one before it (-1).
  step(way) {
    const all = this.rows(true);
    const at = all.indexOf(this.table.shown[this.table.active]);
    const rows = way > 0 ? all.slice(at + 1) : all.slice(0, Math.max(at, 0)).reverse();
    const next = rows.find((item) => item.one && isSuspect(item.one));
    if (next) this.reveal(this.label, next.one);
    else this.count.textContent = `No own error ${way > 0 ? "behind" : "before"} this row`;
  }

  key(event) {
    if (current !== this || dialog.open || event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey) return;
    const isText = event.target.closest("input, textarea, select");
    const item = this.table.shown[this.table.active];
    const vertical = ["ArrowDown", "ArrowUp"].includes(event.key);
    if (vertical && !event.target.closest("select")) this.table.key(event);
    else if (isText) return;
    else if (event.key === "n" || event.key === "p") this.step(event.key === "n" ? 1 : -1);
    else if (event.key === "/") {
      event.preventDefault();
      this.search.focus();
    } else if (["ArrowRight", "ArrowLeft"].includes(event.key) && item && !this.mode.value) this.turn(item, event.key === "ArrowRight");
  }

  // Opens the selected module; closes it, or else goes to the module above.
  turn(item, opens) {
    if (!item.one && item.isOpen !== opens && !this.table.allOpen) this.open(item);
    else if (!opens && item.above !== this.root) {
      this.table.active = this.table.shown.indexOf(item.above);
      this.table.focus(true);
    }
  }

  appear() {
    this.draw();
    this.table.draw(true);
  }

  draw() {
    const width = this.chart.clientWidth;
    if (width && this.points) this.chart.replaceChildren(gapChart(this.points, width, (one) => this.reveal(this.label, one)));
  }
}

// Relative differences along the run, the largest of the calls that share a bar.
function gapChart(points, width, reveal) {
  const [left, top, bottom, low] = [34, 14, 78, -8];
  const bars = Math.max(1, Math.min(points.length, Math.floor((width - left) / 4)));
  const per = Math.ceil(points.length / bars);
  const x = scaled(0, Math.ceil(points.length / per), left, width - 2);
  const y = scaled(low, 0, bottom, top);
  const gapOf = (point) => (point.one.pair.status === "random" ? 0 : point.one.pair.gap);
  const shapes = [["1", 0], ["1e-4", -4], ["1e-8", low]].flatMap(([words, power]) => [line(left, y(power), width, y(power), "grid"), text(left - 4, y(power) + 4, words, "end")]);
  for (let at = 0; at < points.length; at += per) {
    const among = points.slice(at, at + per);
    const most = among.reduce((one, other) => (rank(gapOf(other)) > rank(gapOf(one)) ? other : one));
    const shownOne = among.find((point) => isSuspect(point.one)) || most;
    const gap = gapOf(most);
    const height = gap === 0 ? 1 : Math.max(2, bottom - y(Math.min(0, Number.isFinite(gap) ? Math.log10(gap) : 0)));
    const from = x(at / per);
    shapes.push(s("rect", { class: `gap is-${shownOne.one.pair.status}`, x: from, y: bottom - height, width: Math.max(1, x(at / per + 1) - from - 1), height, onclick: () => reveal(shownOne.one) }, title(`${shownOne.one.name}: ${STATUSES[shownOne.one.pair.status][0]}, relative difference ${shown(gap)}`)));
    if (isSuspect(shownOne.one)) shapes.push(text(from + (x(1) - x(0)) / 2, bottom - height - 3, "✕", "middle", "limit-text"));
  }
  let end = 0;
  for (const [part, name] of PART_NAMES.entries()) {
    const at = points.findIndex((point) => point.part === part);
    const from = Math.max(x(at / per), end);
    if (at < 0 || from + LETTER * name.length > width) continue;
    end = from + LETTER * name.length + 6;
    shapes.push(line(x(at / per), top, x(at / per), bottom + 4, "axis"), text(from + 3, bottom + 14, name, "start"));
  }
  const first = points.find((point) => isSuspect(point.one));
  return s("svg", { width, height: 96, viewBox: `0 0 ${width} 96`, role: "img", "aria-label": `Relative difference along ${count(points.length, "pair")}, from 1e-8 to 1. ${first ? `The first own error is ${first.one.name}.` : "No own error."}` }, ...shapes);
}
