// By API: how many cases, how many fail, and how near the worst is to its limit.
class ApisView {
  constructor(show) {
    this.name = "APIs";
    const found = new Map();
    for (const one of cases) {
      const key = one.api || one.name;
      const entry = found.get(key) || { api: key, cases: 0, error: 0, warning: 0, pass: 0, "pass (self)": 0, skip: 0, ratio: null, share: null, seconds: 0 };
      entry.cases += 1;
      entry[one.verdict] += 1;
      for (const [name, metricName] of [["ratio", "noise_ratio"], ["share", "limit_share"]]) {
        const value = metric(one, metricName);
        if (value !== null && rank(value) > rank(entry[name])) entry[name] = value;
      }
      entry.seconds += metric(one, "duration") || 0;
      found.set(key, entry);
    }
    const figure = (key, label) => ({ key, label, kind: "figure", value: (entry) => entry[key] });
    const share = { ...figure("share", "Share of limit"), cell: (entry) => shownShare(entry.share) };
    const entries = [...found.values()].sort((one, other) => other.error - one.error || other.warning - one.warning || rank(other.share) - rank(one.share));
    this.table = new VirtualTable("APIs", [{ key: "api", label: "API", kind: "name", value: (entry) => entry.api }, figure("cases", "Cases"), figure("error", "Errors"), figure("warning", "Warnings"), figure("skip", "Skips"), figure("ratio", "Worst ratio"), share, figure("seconds", "Time, s")], { open: (entry) => show(entry.api) });
    this.element = h("section", { "aria-label": "APIs" }, h("h2", {}, "By API"), h("p", { class: "quiet small" }, `${count(entries.length, "API")}. The worst ratio is the largest noise ratio of a case; a name shows its cases.`), this.table.element);
    this.table.setItems(entries);
  }

  appear() {
    this.table.draw(true);
  }
}
