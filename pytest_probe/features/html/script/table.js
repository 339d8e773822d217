// A table that holds in the document only the rows that are in view, so that twenty thousand open.
// On a narrow screen a long name takes three lines.
const narrow = matchMedia("(max-width: 46rem)");
const rowHeight = () => (narrow.matches ? 48 : 34);
const ROWS_AROUND = 8;

// columns: [{key, label, kind, value(item), cell(item), description}]; the first one's cell opens the item. kind: name, word,
// dtype, why, place, figure, long, pair or line; a column without value is not sorted by.
class VirtualTable {
  constructor(caption, columns, { open, sorted = null, openName = "Open", short = false }) {
    this.columns = columns;
    this.open = open;
    this.openName = openName;
    this.sorted = sorted;
    this.items = [];
    this.shown = [];
    this.active = 0;
    this.body = h("tbody", { onclick: (event) => this.clicked(event) });
    this.head = h("tr", { "aria-rowindex": 1 });
    this.group = h("colgroup");
    this.table = h("table", { "aria-rowcount": 1 }, h("caption", { class: "off-screen" }, caption), this.group, h("thead", {}, this.head), this.body);
    this.element = h("div", { class: short ? "scroll short" : "scroll", role: "region", "aria-label": caption, tabindex: 0, onkeydown: (event) => this.key(event) }, this.table);
    this.element.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(this.element);
    narrow.addEventListener("change", () => this.draw(true));
    this.drawHead();
  }

  setColumns(columns) {
    this.columns = columns;
    this.drawHead();
    this.draw(true);
  }

  setItems(items) {
    this.items = items;
    this.active = 0;
    this.element.scrollTop = 0;
    this.sort();
  }

  drawHead() {
    this.group.replaceChildren(...this.columns.map((column) => h("col", { class: column.kind })));
    this.head.replaceChildren(...this.columns.map((column) => {
      const order = this.sorted && this.sorted.key === column.key ? this.sorted.order : null;
      const label = column.value
        ? h("button", { type: "button", class: "sorter", title: column.description || `Sort by ${column.label}`, onclick: () => this.sortBy(column) }, column.label, order ? (order === "descending" ? " ▼" : " ▲") : "")
        : h("span", { class: "sorter" }, column.label);
      return h("th", { scope: "col", class: column.kind === "figure" ? "figure" : null, "aria-sort": order }, label);
    }));
  }

  sortBy(column) {
    const first = column.kind === "figure" ? "descending" : "ascending";
    const again = this.sorted && this.sorted.key === column.key;
    const order = again ? (this.sorted.order === "descending" ? "ascending" : "descending") : first;
    this.sorted = { key: column.key, order };
    const place = this.columns.indexOf(column);
    this.drawHead();
    this.head.children[place].querySelector("button").focus();
    this.sort();
  }

  sort() {
    const column = this.sorted && this.columns.find((one) => one.key === this.sorted.key);
    if (!column) {
      this.shown = this.items;
    } else {
      const sign = this.sorted.order === "descending" ? -1 : 1;
      const keyed = this.items.map((item) => [column.value(item), item]);
      if (column.kind === "figure") {
        // What has no number comes last in both orders.
        keyed.sort((one, other) => (one[0] === null) - (other[0] === null) || sign * (rank(one[0]) - rank(other[0])) || 0);
      } else {
        keyed.sort((one, other) => (one[0] < other[0] ? -sign : one[0] > other[0] ? sign : 0));
      }
      this.shown = keyed.map((pair) => pair[1]);
    }
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    this.draw(true);
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw(false);
    });
  }

  draw(anew) {
    const height = this.element.clientHeight || 600;
    const first = Math.max(0, Math.floor(this.element.scrollTop / rowHeight()) - ROWS_AROUND);
    const last = Math.min(this.shown.length, first + Math.ceil(height / rowHeight()) + 2 * ROWS_AROUND);
    if (!anew && this.first === first && this.last === last) return;
    const focused = this.body.contains(document.activeElement);
    this.first = first;
    this.last = last;
    const rows = this.shown.slice(first, last).map((item, place) => this.row(item, first + place));
    this.body.replaceChildren(this.spacer(first), ...rows, this.spacer(this.shown.length - last));
    if (focused) this.focus(false);
  }

  spacer(rows) {
    const cell = h("td", { colspan: this.columns.length });
    cell.style.height = `${rows * rowHeight()}px`;
    return h("tr", { class: "spacer", "aria-hidden": "true", hidden: rows === 0 }, cell);
  }

  row(item, place) {
    const cells = this.columns.map((column, at) => {
      const content = column.cell ? column.cell(item) : column.kind === "figure" ? shown(column.value(item)) : column.value(item);
      if (at > 0 || !this.open) return h("td", { class: column.kind, title: typeof content === "string" ? content : null }, column.kind === "why" ? h("span", {}, content) : content);
      return h("th", { scope: "row" }, h("button", { type: "button", class: "opener", tabindex: place === this.active ? 0 : -1, title: content }, breakable(content)));
    });
    return h("tr", { "aria-rowindex": place + 2, "data-place": place }, ...cells);
  }

  clicked(event) {
    const row = event.target.closest("tr[data-place]");
    if (!row || !this.open || !event.target.closest("button")) return;
    this.active = Number(row.dataset.place);
    this.open(this.shown[this.active], this);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / rowHeight()) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.shown.length, End: this.shown.length };
    if (!(event.key in steps) || event.target.closest("thead") || !this.open || !this.shown.length) return;
    event.preventDefault();
    const inside = this.body.contains(document.activeElement);
    const next = inside ? this.active + steps[event.key] : this.active;
    this.active = Math.max(0, Math.min(this.shown.length - 1, next));
    this.focus(true);
  }

  // Bring the active row into view and give it the focus.
  focus(scroll) {
    if (scroll) {
      const top = this.active * rowHeight();
      const room = this.element.clientHeight - 2 * rowHeight();
      if (top < this.element.scrollTop) this.element.scrollTop = top;
      if (top > this.element.scrollTop + room) this.element.scrollTop = top - room;
      this.draw(true);
    }
    const row = this.body.querySelector(`tr[data-place="${this.active}"] button`);
    (row || this.element).focus({ preventScroll: true });
  }

  // The item so many rows from the active one, which becomes the active one; null beyond the ends.
  step(rows) {
    const next = this.active + rows;
    if (next < 0 || next >= this.shown.length) return null;
    this.active = next;
    return this.shown[next];
  }
}
