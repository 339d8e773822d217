// What a case is beside another dump's: a word and a sign for each status, the gravest first.
const STATUSES = {
  own: ["own error", "✕"],
  replicas: ["replicas differ", "✕"],
  arguments: ["other arguments", "≠"],
  differs: ["differs", "≠"],
  inherited: ["inherited", "↓"],
  incomparable: ["not comparable", "!"],
  unmatched: ["unmatched", "∅"],
  random: ["random", "?"],
  rounding: ["rounding", "≈"],
  recovers: ["recovers", "↑"],
  equal: ["equal", "="],
};
const GRAVEST = Object.keys(STATUSES);
// An error of the call's own, or what may be one.
const isSuspect = (one) => ["own", "replicas", "arguments", "differs"].includes(one.pair.status);

if (document.getElementById("probe-against")) {
  const found = data("probe-against");
  for (const [row, status, gap, nearer, a, b, other, suspect, difference, sources] of found.rows) {
    cases[row].pair = { status: found.statuses[status], gap: asNumber(gap) || 0, nearer: nearer || "", noise: [asNumber(a), asNumber(b)], other: other || "", suspect, difference, sources };
  }
}

function statusMark(status, words = STATUSES[status][0]) {
  return h("span", { class: "status" }, h("span", { class: "sign", "aria-hidden": "true" }, STATUSES[status][1]), ` ${words}`);
}

const statusWords = (pair) => STATUSES[pair.status][0] + (pair.suspect ? ` of ${pair.suspect}` : "");

// "B (A 1,680, B 2.29)": the side that is nearer to float64, and both noise ratios.
function noiseWords(pair) {
  if (pair.noise.every((ratio) => ratio === null)) return "";
  const both = ["A", "B"].map((side, place) => `${side} ${shown(pair.noise[place]) || "-"}`).join(", ");
  return pair.nearer ? `${pair.nearer} (${both})` : both;
}

function pairParts(one) {
  if (!one.pair) return [];
  const { pair } = one;
  const rows = [["it is", statusMark(pair.status, statusWords(pair))], ["in B", pair.other || (pair.status === "unmatched" ? "" : "the same name")], ["relative difference", shown(pair.gap)], ["nearer to float64, noise ratios", noiseWords(pair)], ["differ by", pair.difference], ["inputs made by", pair.sources]];
  return [h("h3", {}, "A against B"), h("table", { class: "pair" }, h("tbody", {}, ...rows.filter(([, value]) => value).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))))];
}
