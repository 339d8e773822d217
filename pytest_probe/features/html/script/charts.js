// Plots as SVG. Each says in words what it shows, for those who do not see it.
const WIDTH = 420;
const HEIGHT = 190;
const MARGIN = { left: 46, right: 12, top: 32, bottom: 34 };
// Of a letter, about.
const LETTER = 6;
const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

function figure(title, note, label, width, height, ...children) {
  return h(
    "figure",
    {},
    h("figcaption", {}, title, note ? h("span", { class: "quiet" }, ` ${note}`) : null),
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...children),
  );
}

const scaled = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
const title = (text) => s("title", {}, text);
const text = (x, y, words, anchor = "middle", kind = "") => s("text", { x, y, "text-anchor": anchor, class: kind }, words);
const line = (x1, y1, x2, y2, kind) => s("line", { x1, y1, x2, y2, class: kind });

function powerOfTwo(exponent) {
  const value = 2 ** exponent;
  return exponent >= 14 || exponent <= -4 ? `2^${exponent}` : shown(value);
}

// Round numbers from low to high, about so many, each as it is written.
function roundTicks(low, high, wanted) {
  const rough = (high - low || 1) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const decimals = Math.max(0, -Math.floor(Math.log10(step)));
  const written = (value) => (Math.abs(value) >= 1e6 || decimals > 5 ? shown(Number(value.toPrecision(12))) : value.toLocaleString("en-US", { maximumFractionDigits: decimals }));
  const found = [];
  for (let place = Math.ceil(low / step); place * step <= high; place += 1) found.push([place * step, written(place * step || 0)]);
  return found;
}

// Limits above the plot, from left to right one below the other, so that none crosses the line of another. Limits that
// are the same have one line.
function limitLines(limits, x) {
  const words = new Map();
  for (const limit of limits) words.set(limit.value, [...(words.get(limit.value) || []), limit.label]);
  return [...words].sort(([one], [other]) => one - other).flatMap(([value, labels], row) => {
    const [at, y, label] = [x(Math.log2(value)), 10 + 13 * row, labels.join(", ")];
    const left = at + LETTER * label.length > WIDTH;
    return [line(at, y - 9, at, HEIGHT - MARGIN.bottom, "limit"), text(at + (left ? -4 : 4), y, label, left ? "end" : "start", "limit-text")];
  });
}

// counts of powers of two; limits: [{value, label}].
function histogramChart(heading, found, limits, what) {
  const known = limits.filter((limit) => Number.isFinite(limit.value) && limit.value > 0);
  const marks = known.map((limit) => Math.log2(limit.value));
  const ends = found.counts.length ? [found.first, found.first + found.counts.length] : [];
  const low = Math.floor(Math.min(0, ...ends, ...marks)) - 1;
  const high = Math.ceil(Math.max(1, ...ends, ...marks)) + (found.large ? 1 : 0) + 0.5;
  const x = scaled(low - 1, high, MARGIN.left, WIDTH - MARGIN.right);
  const bars = found.counts.map((number, place) => [found.first + place, number]);
  if (found.small) bars.unshift([low - 1, found.small, "0 or nearly"]);
  if (found.large) bars.push([high - 1.5, found.large, "not finite, or beyond 2^63"]);
  const most = Math.max(1, ...bars.map((bar) => bar[1]));
  const y = scaled(0, Math.log10(most + 1), HEIGHT - MARGIN.bottom, MARGIN.top);
  const beyond = Math.min(Infinity, ...known.filter((limit) => !limit.harmless).map((limit) => Math.log2(limit.value)).slice(0, 1));
  const shapes = bars.map(([exponent, number, name]) =>
    s(
      "rect",
      {
        class: exponent >= beyond ? "bar beyond" : "bar",
        x: x(exponent) + 1,
        width: Math.max(1, x(exponent + 1) - x(exponent) - 2),
        y: y(Math.log10(number + 1)),
        height: HEIGHT - MARGIN.bottom - y(Math.log10(number + 1)),
      },
      title(`${name || `${powerOfTwo(exponent)} to ${powerOfTwo(exponent + 1)}`}: ${count(number, "element")}`),
    ),
  );
  const step = Math.max(1, Math.ceil((high - low) / 7));
  const ticks = [];
  for (let exponent = low; exponent <= high; exponent += 1) {
    const covered = found.small && x(exponent) - x(low - 0.5) < 5 * LETTER;
    if (exponent % step === 0 && !covered) ticks.push(text(x(exponent), HEIGHT - 20, powerOfTwo(exponent)), line(x(exponent), HEIGHT - MARGIN.bottom, x(exponent), HEIGHT - MARGIN.bottom + 4, "axis"));
  }
  if (found.small) ticks.push(text(x(low - 0.5), HEIGHT - 20, "~0"));
  for (let power = 1; power <= most; power *= 10) {
    const at = y(Math.log10(power + 1));
    ticks.push(line(MARGIN.left, at, WIDTH - MARGIN.right, at, "grid"), text(MARGIN.left - 5, at + 4, shown(power), "end"));
  }
  const lines = limitLines(known, x);
  const told = bars.map(([exponent, number, name]) => `${name || `from ${powerOfTwo(exponent)}`}: ${number}`).join(", ");
  const note = found.step > 1 ? `(every ${found.step.toLocaleString("en-US")}th element, and the largest)` : "";
  const label = `${heading}. Number of elements by ${what}: ${told || "none"}. ${known.map((limit) => `${limit.label} ${shown(limit.value)}`).join(", ")}`;
  return figure(heading, note, label, WIDTH, HEIGHT, ...ticks, ...shapes, ...lines,
    line(MARGIN.left, HEIGHT - MARGIN.bottom, WIDTH - MARGIN.right, HEIGHT - MARGIN.bottom, "axis"),
    text(WIDTH / 2, HEIGHT - 4, what));
}

function scatterChart(points) {
  const actual = points.expected.map((value, place) => value + points.more[place]);
  const all = [...points.expected, ...actual];
  const low = Math.min(...all);
  const high = Math.max(...all);
  const space = (high - low || Math.abs(high) || 1) * 0.05;
  const x = scaled(low - space, high + space, MARGIN.left + 14, WIDTH - MARGIN.right);
  const y = scaled(low - space, high + space, HEIGHT + 40 - MARGIN.bottom, 22);
  const height = HEIGHT + 40;
  const shapes = points.expected.map((value, place) =>
    s(
      "circle",
      { class: place < points.worst ? "dot worst" : "dot", cx: x(value), cy: y(actual[place]), r: place < points.worst ? 4.5 : 2.6 },
      title(`expected ${shown(value)}, difference ${shown(points.more[place])}`),
    ),
  ).reverse();
  const largest = Math.max(0, ...points.more.map(Math.abs));
  const ticks = roundTicks(low - space, high + space, 5).flatMap(([value, words]) => [
    text(x(value), height - 18, words),
    text(MARGIN.left + 8, y(value) + 4, words, "end"),
    line(x(value), 22, x(value), height - MARGIN.bottom, "grid"),
    line(MARGIN.left + 14, y(value), WIDTH - MARGIN.right, y(value), "grid"),
  ]);
  const note = `(${points.worst === 1 ? "ring: the largest error" : `rings: the ${points.worst} largest errors`}; largest difference ${shown(largest)})`;
  return figure("Actual against expected", note,
    `Actual against expected for ${all.length / 2} elements, from ${shown(low)} to ${shown(high)}; the largest difference is ${shown(largest)}`,
    WIDTH, height, ...ticks, line(x(low), y(low), x(high), y(high), "ideal"), ...shapes, text(WIDTH / 2, height - 3, "expected"), text(4, 14, "actual", "start"));
}

function mapChart(found, unit) {
  const columnCount = found.columns;
  const rowCount = found.cells.length / columnCount;
  const side = Math.max(4, Math.min(48, Math.floor(390 / columnCount), Math.floor(220 / rowCount)));
  const levels = [...found.cells].map((letter) => LETTERS.indexOf(letter));
  const seen = levels.filter((level) => level > 0 && level < 63);
  const low = Math.min(...seen, 62);
  const high = Math.max(...seen, low + 1);
  const shapes = levels.map((level, place) => {
    const share = level === 63 ? 1 : level === 0 ? 0 : (level - low) / (high - low);
    const attributes = { x: 34 + side * (place % columnCount), y: 6 + side * Math.floor(place / columnCount), width: side - 0.5, height: side - 0.5 };
    if (level === 0) return s("rect", { ...attributes, class: "cell-none" });
    return s("rect", { ...attributes, class: "cell", fill: `color-mix(in oklab, var(--high) ${Math.round(100 * share)}%, var(--low))` });
  });
  const name = (level) => (level === 0 ? "none" : level === 63 ? "not finite" : `up to ${powerOfTwo(level - 8)} ${unit}`);
  const worst = Math.max(...levels);
  const place = levels.indexOf(worst);
  const index = found.index.length ? `, at [${found.index.join(", ")}, :, :]` : "";
  const bottom = 6 + side * rowCount;
  return figure("Error by position", `(${found.extents.join(" x ")}${index}; the worst of each cell)`,
    `Error by position in a slice of ${found.extents.join(" by ")}: the largest is ${name(worst)}, in row ${Math.floor(place / columnCount) + 1} of ${rowCount} and column ${place % columnCount + 1} of ${columnCount} of the map; ${levels.filter((level) => level === worst).length} of ${levels.length} cells have it`,
    Math.max(WIDTH, 44 + side * columnCount), bottom + 36, ...shapes,
    text(30, 16, "0", "end"), bottom - 16 < 12 ? null : text(30, bottom, shown(found.extents[0] - 1), "end"),
    text(34, bottom + 13, "0", "start"), side * columnCount < 40 ? null : text(34 + side * columnCount, bottom + 13, shown(found.extents[1] - 1), "end"),
    ...[[low, "var(--low)"], [high, "var(--high)"]].flatMap(([level, fill], at) => [
      s("rect", { x: 34 + 150 * at, y: bottom + 20, width: 10, height: 10, fill }),
      text(48 + 150 * at, bottom + 29, name(seen.length ? level : 0), "start"),
    ]));
}

// letters: one a run, of half powers of two; the last run is this one.
function sparkline(letters, what) {
  const levels = [...letters].map((letter) => LETTERS.indexOf(letter));
  const known = levels.filter((level) => level >= 0);
  if (!known.length) return null;
  const width = 120;
  const x = scaled(0, Math.max(1, levels.length - 1), 3, width - 4);
  const y = scaled(Math.min(...known), Math.max(...known, Math.min(...known) + 4), 18, 3);
  const places = levels.map((level, place) => [place, level]).filter(([, level]) => level >= 0);
  const value = (level) => (level === 0 ? "0" : level === 63 ? "not finite" : shown(Number((2 ** ((level - 1) / 2 - 10)).toPrecision(2))));
  const [last, level] = places[places.length - 1];
  return s(
    "svg",
    { viewBox: `0 0 ${width} 21`, width, height: 21, role: "img", "aria-label": `${what} over ${count(places.length, "run")}: first about ${value(places[0][1])}, last about ${value(level)}` },
    title(places.map((place) => `about ${value(place[1])}`).join(", ")),
    s("polyline", { class: "spark", points: places.map(([place, at]) => `${x(place)},${y(at)}`).join(" ") }),
    s("circle", { class: "spark-end", cx: x(last), cy: y(level), r: 2.4 }),
  );
}

function ticksOfPowers(low, high, base) {
  const found = [];
  for (let power = Math.ceil(Math.log(low) / Math.log(base)); base ** power <= high * 1.0001; power += 1) found.push(base ** power);
  const step = Math.max(1, Math.ceil(found.length / 8));
  return found.filter((_, place) => place % step === 0);
}

// moves: [{name, before, now, open}], positive numbers.
function slopeChart(moves, what) {
  const width = 760;
  const height = 380;
  const all = moves.flatMap((move) => [move.before, move.now]).filter((value) => Number.isFinite(value) && value > 0).sort((one, other) => one - other);
  if (!all.length) return null;
  // One value far beyond all others would press them together.
  const middle = all[Math.floor(all.length / 2)];
  const low = Math.max(all[0] / 1.5, middle / 1e5);
  const high = Math.min(all[all.length - 1] * 1.5, middle * 1e5);
  const y = (value) => scaled(Math.log(low), Math.log(high), height - 24, 20)(Math.log(Math.min(high, Math.max(low, value || low))));
  const [left, right] = [150, width - 260];
  const shapes = moves.map((move) => {
    const kind = move.now > move.before ? "slope worse" : "slope better";
    return s("g", {}, title(`${move.name}: ${shown(move.before)} before, ${shown(move.now)} now`), s("path", { class: kind, d: `M${left},${y(move.before)} L${right},${y(move.now)}` }));
  });
  const taken = [];
  const words = moves.slice(0, 14).flatMap((move) => {
    const at = y(move.now);
    if (taken.some((other) => Math.abs(other - at) < 13)) return [];
    taken.push(at);
    return [text(right + 6, at + 4, move.name.length > 40 ? `${move.name.slice(0, 38)}…` : move.name, "start")];
  });
  const ticks = ticksOfPowers(low, high, 10).flatMap((value) => [line(left, y(value), right, y(value), "grid"), text(left - 8, y(value) + 4, shown(value), "end")]);
  return figure(`What moved: ${what}`, `(${count(moves.length, "case")}; red: larger now, green: smaller; what lies beyond the axes is drawn at their ends)`,
    `Slope chart of ${what}, before and now, of ${moves.length} cases; the table below has the numbers`, width, height,
    ...ticks, line(left, 20, left, height - 24, "axis"), line(right, 20, right, height - 24, "axis"), ...shapes, ...words,
    text(left, height - 6, "before", "middle", "strong"), text(right, height - 6, "now", "middle", "strong"));
}

// bars: [{name, value}]; line at 1.
function ratioChart(bars) {
  const width = 760;
  const row = 18;
  const height = 30 + row * bars.length;
  const logs = bars.map((bar) => Math.log2(bar.value));
  const x = scaled(Math.min(-0.5, ...logs), Math.max(0.5, ...logs), 330, width - 60);
  const shapes = bars.flatMap((bar, place) => {
    const [from, to] = [x(0), x(logs[place])].sort((one, other) => one - other);
    return [
      text(322, 20 + row * place, bar.name.length > 48 ? `${bar.name.slice(0, 46)}…` : bar.name, "end"),
      s("rect", { class: bar.value > 1 ? "bar beyond" : "bar", x: from, y: 10 + row * place, width: Math.max(1, to - from), height: row - 5 }, title(`${bar.name}: ${shown(bar.value)} times`)),
      text(to + 4, 20 + row * place, `${shown(bar.value)} x`, "start"),
    ];
  });
  return figure("Time beside the other run", "(1: as fast; right: slower here)",
    `Time beside the other run: ${bars.slice(0, 10).map((bar) => `${bar.name} ${shown(bar.value)} times`).join(", ")}`,
    width, height, line(x(0), 4, x(0), height - 14, "axis"), ...shapes);
}

// points: [{name, intensity, rate, kind}], ceilings: {bytes, product} in GB/s and GFLOP/s, each may be missing.
function rooflineChart(points, ceilings) {
  const [width, height] = [760, 360];
  const ends = [ceilings.bytes && ceilings.product ? ceilings.product / ceilings.bytes : null].filter(Boolean);
  const xs = [...points.map((point) => point.intensity), ...ends];
  const ys = [...points.map((point) => point.rate), ...(ceilings.product ? [ceilings.product] : [])];
  const [left, right, low, high] = [Math.min(...xs) / 2, Math.max(...xs) * 4, Math.min(...ys) / 2, Math.max(...ys) * 2];
  const log = (from, to, start, end) => (value) => scaled(Math.log(from), Math.log(to), start, end)(Math.log(value));
  const x = log(left, right, 60, width - 20);
  const y = log(low, high, height - 40, 14);
  const roof = [];
  if (ceilings.bytes) {
    const end = ceilings.product ? ceilings.product / ceilings.bytes : right;
    const start = Math.max(left, low / ceilings.bytes);
    if (start < end) roof.push(line(x(start), y(start * ceilings.bytes), x(end), y(end * ceilings.bytes), "limit"), text(x(start) + 6, y(start * ceilings.bytes) - 8, `copy: ${shown(ceilings.bytes)} GB/s`, "start", "limit-text"));
  }
  if (ceilings.product) {
    const start = ceilings.bytes ? ceilings.product / ceilings.bytes : left;
    roof.push(line(x(start), y(ceilings.product), x(right), y(ceilings.product), "limit"), text(width - 24, y(ceilings.product) - 6, `matrix product: ${shown(ceilings.product)} GFLOP/s`, "end", "limit-text"));
  }
  const ticks = [
    ...ticksOfPowers(left, right, 10).flatMap((value) => [line(x(value), 14, x(value), height - 40, "grid"), text(x(value), height - 24, shown(value))]),
    ...ticksOfPowers(low, high, 10).flatMap((value) => [line(60, y(value), width - 20, y(value), "grid"), text(54, y(value) + 4, shown(value), "end")]),
  ];
  const dots = points.map((point) => s("circle", { class: "dot", cx: x(point.intensity), cy: y(point.rate), r: 3.4 }, title(`${point.name}: ${shown(point.rate)} GFLOP/s, ${shown(point.intensity)} FLOP a byte`)));
  return figure("Roofline", "(each dot a case; what lies far below the dashed lines could be faster)",
    `Roofline of ${points.length} cases: GFLOP/s against FLOP a byte`, width, height, ...ticks, ...roof, ...dots,
    text(width / 2, height - 6, "FLOP a byte"), text(56, 10, "GFLOP/s"));
}
