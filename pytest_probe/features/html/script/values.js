// The data of the page, taken apart when they are first needed.
const parsed = new Map();
function data(id) {
  if (!parsed.has(id)) parsed.set(id, JSON.parse(document.getElementById(id).textContent));
  return parsed.get(id);
}

const { names, columns } = data("probe-names");
const SEVERITY = { error: 3, warning: 2, "pass (self)": 1, pass: 1, skip: 0 };
// What a row holds before its metrics.
const FIXED = 14;

// Numbers that JSON does not have are texts; "" stands for none.
function asNumber(value) {
  if (value === "" || value === undefined || value === null) return null;
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : value === "nan" ? NaN : Number(value);
}

const cases = data("probe-rows").map((row, place) => ({
  row: place,
  label: names.labels[row[0]],
  name: row[1],
  dtype: names.dtypes[row[2]],
  api: names.apis[row[3]],
  direction: names.directions[row[4]],
  device: names.devices[row[5]],
  verdict: names.verdicts[row[6]],
  place: row[7],
  module: names.modules[row[8]],
  kind: names.kinds[row[9]],
  cause: names.causes[row[10]],
  line: names.places[row[11]],
  group: row[12] < 0 ? "" : String(row[12]),
  reason: row[13],
  numbers: row,
}));

const columnPlace = new Map(columns.map(([name], place) => [name, place]));
const labelOf = new Map(columns);

function metric(one, name) {
  const place = columnPlace.get(name);
  return place === undefined ? null : asNumber(one.numbers[FIXED + place]);
}

function shown(value) {
  if (value === null || value === undefined) return "";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2).replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

// NaN is worse than any number, and a case without a number comes last.
const rank = (value) => (value === null ? -Infinity : Number.isNaN(value) ? Number.MAX_VALUE : value);
const byBadness = (one, other) =>
  SEVERITY[other.verdict] - SEVERITY[one.verdict] ||
  rank(metric(other, "limit_share")) - rank(metric(one, "limit_share")) ||
  one.row - other.row;

// A share of a limit: in percent near it, else how many times it is.
function shownShare(share) {
  if (share === null) return "";
  if (!Number.isFinite(share) || share >= 10) return `${shown(share)}${Number.isFinite(share) ? " x" : ""}`;
  return `${shown(Number((100 * share).toPrecision(3)))} %`;
}

const count = (number, noun) => `${number.toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;
