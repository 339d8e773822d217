// What the cases took: beside another run, and beside what the device reaches.
class TimesView {
  constructor() {
    this.name = "Times";
    const beside = cases.filter((one) => metric(one, "time_ratio") > 0).map((one) => ({ name: one.name, value: metric(one, "time_ratio") }));
    beside.sort((one, other) => Math.abs(Math.log(other.value)) - Math.abs(Math.log(one.value)));
    const rated = cases.filter((one) => metric(one, "gflop_per_s") > 0 && metric(one, "gb_per_s") > 0);
    const points = rated.map((one) => ({ name: one.name, rate: metric(one, "gflop_per_s"), intensity: metric(one, "gflop_per_s") / metric(one, "gb_per_s") }));
    const most = (name) => Math.max(0, ...Object.values(data("probe-details")).map((one) => (one.time && one.time.throughput && one.time.throughput[name]) || 0)) || null;
    const slowest = [...cases].filter((one) => metric(one, "time_us") !== null).sort((one, other) => metric(other, "time_us") - metric(one, "time_us"));
    const figure = (key, label) => ({ key, label, kind: "figure", value: (one) => metric(one, key) });
    this.table = new VirtualTable("Times of cases", [{ key: "name", label: "Case", kind: "name", value: (one) => one.name }, figure("time_us", "Time, us"), figure("time_ratio", "Beside"), figure("gflop_per_s", "GFLOP/s"), figure("gb_per_s", "GB/s"), figure("peak_bytes", "Memory, bytes")], { open: openCase, short: true });
    this.table.setItems(slowest);
    this.element = h("section", { "aria-label": "Times" }, h("h2", {}, "Times"),
      beside.length ? ratioChart(beside.slice(0, 40).sort((one, other) => other.value - one.value)) : null,
      points.length ? rooflineChart(points, { bytes: most("copy_gb_per_s"), product: most("product_gflop_per_s") }) : null,
      h("h3", {}, "Slowest first"), this.table.element);
  }

  static isThere() {
    return columnPlace.has("time_us") || columnPlace.has("peak_bytes");
  }

  appear() {
    this.table.draw(true);
  }
}
