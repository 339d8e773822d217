// Where it begins: every case along the sequence of calls, forward and then backward, below the modules' path.
const LANE = 18;
const LANES = 5;
const PLOT = 242;

class SequenceView {
  constructor() {
    this.name = "Where it begins";
    const labels = [...new Set(cases.filter((one) => one.place >= 0).map((one) => one.label))];
    this.label = labels.find((label) => cases.some((one) => one.label === label && one.verdict === "error")) || labels[0];
    this.select = options(h("select", { onchange: () => { this.label = this.select.value || labels[0]; this.appear(); } }), labels.slice(1).map((label) => [label, label]), labels[0]);
    this.select.value = this.label === labels[0] ? "" : this.label;
    this.canvas = h("canvas", { role: "img", onclick: (event) => this.clicked(event), onmousemove: (event) => this.over(event) });
    this.list = h("ol", { class: "firsts" });
    this.told = h("p");
    this.element = h("section", { "aria-label": "Where it begins" }, h("h2", {}, "Where it begins"),
      labels.length ? null : h("p", {}, "The results do not say at which place of the dump a case is. A run with --probe-out or --probe-html does."),
      labels.length > 1 ? h("div", { class: "toolbar" }, labelled("Dump", this.select)) : null,
      labels.length ? [this.told, this.canvas, h("p", { class: "quiet small" }, "From left to right: the calls of the forward in their order, those of the backward, which begins with the last, and what came after it, as the optimizer's. Height: share of the limit; the dashed line is the limit. The bands name the modules that made the calls."), h("h3", {}, "First errors and warnings"), this.list] : []);
    this.empty = !labels.length;
    new ResizeObserver(() => { if (!this.element.hidden) this.draw(); }).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  appear() {
    if (this.empty) return;
    const own = cases.filter((one) => one.place >= 0 && one.label === (this.select.value || this.label));
    const most = Math.max(...own.map((one) => one.place)) + 1;
    this.points = inSequence(own);
    this.total = this.points.length;
    const bad = this.points.filter((point) => SEVERITY[point.one.verdict] > 1);
    const errors = bad.filter((point) => point.one.verdict === "error");
    const first = errors[0] || bad[0];
    this.first = first;
    this.told.replaceChildren(...(first
      ? [`The first ${first.one.verdict} is `, this.opener(first.one), first.one.module ? ` in ${first.one.module}` : "", `: call ${first.one.place + 1} of ${most} in the dump. ${count(errors.length, "error")} in ${count(own.length, "case")}.`]
      : ["No case is an error or a warning."]));
    const listed = [...errors, ...bad.filter((point) => point.one.verdict !== "error")].slice(0, 20).sort((a, b) => a.at - b.at);
    this.list.replaceChildren(...listed.map((point) => h("li", {}, verdictMark(point.one.verdict), " ", this.opener(point.one), point.one.module ? h("span", { class: "quiet" }, ` ${point.one.module}`) : null)));
    this.canvas.setAttribute("aria-label", `${count(own.length, "case")} along the sequence of calls. ${first ? `The first ${first.one.verdict} is ${first.one.name}. The list below has the first errors and warnings in their order.` : "None is an error or a warning."}`);
    this.draw();
  }

  opener(one) {
    return h("button", { type: "button", class: "opener", onclick: (event) => openCase(one, { focus: () => event.target.focus(), step: () => null }) }, one.name);
  }

  draw() {
    if (!this.points) return;
    const depth = Math.min(LANES, Math.max(0, ...this.points.map((point) => (point.one.module ? point.one.module.split(".").length : 0))));
    const height = depth * LANE + PLOT;
    const width = this.canvas.clientWidth || 900;
    const density = devicePixelRatio || 1;
    this.canvas.width = width * density;
    this.canvas.height = height * density;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(density, density);
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    pen.font = "11px system-ui, sans-serif";
    this.x = scaled(0, this.total, 46, width - 10);
    this.lanes(pen, depth, colour);
    this.dots(pen, depth * LANE, height, colour, width);
  }

  lanes(pen, depth, colour) {
    for (let lane = 0; lane < depth; lane += 1) {
      let begun = null;
      let shade = 0;
      const end = (at) => {
        if (!begun || !begun.path) return;
        const [from, to] = [this.x(begun.at), this.x(at)];
        pen.fillStyle = colour(shade % 2 ? "low" : "raised");
        pen.fillRect(from, lane * LANE, Math.max(1, to - from - 0.5), LANE - 2);
        pen.fillStyle = colour("text");
        const name = begun.path.split(".").pop();
        if (pen.measureText(name).width < to - from - 6) pen.fillText(name, from + 3, lane * LANE + 12);
      };
      for (const point of this.points) {
        const parts = point.one.module ? point.one.module.split(".") : [];
        const path = parts.length > lane ? parts.slice(0, lane + 1).join(".") : "";
        if (begun && begun.path === path) continue;
        end(point.at);
        begun = { path, at: point.at };
        shade += 1;
      }
      end(this.total);
    }
  }

  dots(pen, top, height, colour, width) {
    const [low, high] = [-4, 3];
    const y = scaled(low, high, height - 38, top + 28);
    const level = (point) => {
      const share = metric(point.one, "limit_share");
      if (share === null || Number.isNaN(share)) return SEVERITY[point.one.verdict] > 1 ? high : low;
      return Math.max(low, Math.min(high, Math.log10(share || 1e-9)));
    };
    pen.strokeStyle = colour("line");
    pen.fillStyle = colour("quiet");
    for (let power = low; power <= high; power += 1) {
      pen.setLineDash(power ? [] : [5, 3]);
      pen.strokeStyle = power ? colour("line") : colour("error");
      pen.beginPath();
      pen.moveTo(46, y(power));
      pen.lineTo(width - 10, y(power));
      pen.stroke();
      pen.textAlign = "right";
      pen.fillText(power === 0 ? "limit" : power < 0 ? `${100 * 10 ** power} %` : `${10 ** power} x`, 42, y(power) + 4);
    }
    pen.setLineDash([]);
    pen.textAlign = "left";
    // Where one name would cover the next, that one is a line lower.
    let [end, lower] = [0, false];
    for (const part of this.parts()) {
      const size = pen.measureText(part.name).width;
      const from = Math.min(this.x(part.at) + 3, width - size);
      lower = from < end && !lower;
      end = from + size + 4;
      pen.fillText(part.name, from, height - (lower ? 5 : 18));
      if (part.at) pen.fillRect(this.x(part.at), top + 10, 1, height - top - 14);
    }
    for (const wanted of [0, 1, 2, 3]) {
      for (const point of this.points) {
        if (SEVERITY[point.one.verdict] !== wanted) continue;
        point.shownX = this.x(point.at + 0.5);
        point.shownY = y(level(point));
        mark(pen, point, colour(point.one.verdict.split(" ")[0]));
      }
    }
    if (this.first) {
      pen.strokeStyle = colour(this.first.one.verdict);
      pen.beginPath();
      pen.moveTo(this.first.shownX, top + 4);
      pen.lineTo(this.first.shownX, height - 32);
      pen.stroke();
      pen.font = "600 12px system-ui, sans-serif";
      const words = `first ${this.first.one.verdict}: ${this.first.one.name}`;
      const size = Math.min(pen.measureText(words).width, width);
      const [behind, before] = [this.first.shownX + 5, this.first.shownX - size - 5];
      // To the right of the line, else to its left, else as far left as it has to begin to be read in full.
      const from = behind + size <= width ? behind : before >= 0 ? before : Math.max(0, width - size);
      pen.fillStyle = colour("ground");
      pen.fillRect(from - 2, top, size + 4, 16);
      pen.fillStyle = colour(this.first.one.verdict);
      pen.fillText(words, from, top + 12, width);
    }
  }

  parts() {
    return ["forward", "backward", "after it"].map((name, part) => ({ name, at: this.points.findIndex((point) => point.part === part) })).filter((part) => part.at >= 0);
  }

  nearest(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    for (const point of this.points || []) {
      const away = (point.shownX - x) ** 2 + (point.shownY - y) ** 2;
      if (away < 100 && (!best || away < best.away)) best = { away, point };
    }
    return best && best.point.one;
  }

  over(event) {
    const one = this.nearest(event);
    this.canvas.title = one ? `${one.verdict}: ${one.name}` : "";
  }

  clicked(event) {
    const one = this.nearest(event);
    if (one) openCase(one, null);
  }
}

// The cases in the order in which a training step comes to them: forward calls up to the last one that has a backward,
// the backward from there to the first, and the rest.
function inSequence(own) {
  const turn = Math.max(-1, ...own.filter((one) => one.direction === "backward").map((one) => one.place));
  const part = (one) => (one.direction === "backward" ? 1 : one.place <= turn ? 0 : turn < 0 ? 0 : 2);
  const order = (one, other) => part(one) - part(other) || (part(one) === 1 ? other.place - one.place : one.place - other.place) || one.row - other.row;
  return [...own].sort(order).map((one, at) => ({ one, at, part: part(one) }));
}

// The places of all cases, one dump after the other.
let calls = null;
function inOrderOfCalls(found) {
  if (!calls) {
    const dumps = new Map(names.labels.map((label) => [label, []]));
    for (const one of cases) dumps.get(one.label).push(one);
    const ordered = [...dumps.values()].flatMap((own) => inSequence(own));
    calls = new Map(ordered.map((point, place) => [point.one, place]));
  }
  return found.sort((one, other) => calls.get(one) - calls.get(other));
}

// Each verdict has a shape of its own, not only a colour.
function mark(pen, point, colour) {
  const { shownX: x, shownY: y } = point;
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  if (point.one.verdict === "error") {
    pen.moveTo(x - 4, y - 4);
    pen.lineTo(x + 4, y + 4);
    pen.moveTo(x + 4, y - 4);
    pen.lineTo(x - 4, y + 4);
    pen.stroke();
  } else if (point.one.verdict === "warning") {
    pen.moveTo(x, y - 5);
    pen.lineTo(x + 5, y + 4);
    pen.lineTo(x - 5, y + 4);
    pen.fill();
  } else {
    pen.arc(x, y, point.one.verdict === "skip" ? 1.5 : 2, 0, 7);
    pen.globalAlpha = 0.55;
    pen.fill();
    pen.globalAlpha = 1;
  }
  pen.lineWidth = 1;
}
