// The rows of a table for elsewhere: a CSV file, and a text to paste into an issue.
const MAX_LINES = 100;

// What a spreadsheet would take for a formula is marked as text.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvOf(rows) {
  const words = [["case", full], ...["verdict", "direction", "dtype", "device", "module"].map((name) => [name, (one) => one[name]]), ["looks like", (one) => one.cause], ["called at", (one) => one.line]];
  const columns = [...words, ...inUse.map(([name, label]) => [label, (one) => metric(one, name)]), ["reason", (one) => one.reason]];
  return [columns.map(([head]) => head), ...rows.map((one) => columns.map(([, value]) => value(one)))].map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");
}

function saveCsv(rows) {
  const link = h("a", { download: "cases.csv", href: URL.createObjectURL(new Blob([csvOf(rows)], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// In Markdown, in which a dump's own marks are code.
function textOf(rows, heading) {
  const code = (text) => `\`${text.replaceAll("`", "'")}\``;
  const lines = rows.slice(0, MAX_LINES).map((one) => {
    const share = metric(one, "limit_share");
    const parts = [one.line && code(one.line), one.cause && `looks like ${code(one.cause)}`, one.reason && code(one.reason), share !== null && `${shownShare(share)} of its limit`];
    return `- **${one.verdict}** ${code(full(one))}: ${parts.filter(Boolean).join("; ")}`.replace(/: $/, "");
  });
  const tiles = [...document.querySelectorAll(".tiles .tile")].map((tile) => `${tile.querySelector("dt").textContent} ${tile.querySelector("dd").textContent}`);
  const more = rows.length > MAX_LINES ? [`- and ${(rows.length - MAX_LINES).toLocaleString("en-US")} more`] : [];
  return [`${heading}: ${tiles.join(", ")}`, "", ...lines, ...more, ""].join("\n");
}

function showText(place, rows, heading) {
  const told = h("span", { role: "status", class: "quiet" });
  const area = h("textarea", { readonly: true, rows: 8, "aria-label": "Text for an issue" });
  area.value = textOf(rows, heading);
  place.replaceChildren(h("div", { class: "exported" }, area, h("button", { type: "button", onclick: () => copyText(area, area.value, told) }, "Copy"), h("button", { type: "button", onclick: () => place.replaceChildren() }, "Close"), told));
  area.select();
}
