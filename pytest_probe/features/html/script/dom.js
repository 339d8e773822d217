// Elements by their tag, attributes and children. Text is always set as text: nothing of a dump is ever read as HTML.
const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

// A name, which may be broken behind its dots and underscores.
const breakable = (name) => name.split(/(?<=[._:])/).flatMap((part, place) => (place ? [h("wbr"), part] : [part]));

function verdictMark(verdict) {
  return h("span", { class: verdict }, h("span", { class: "mark", "aria-hidden": "true" }), verdict);
}

function labelled(text, control) {
  return h("label", {}, text, control);
}

function options(select, choices, first) {
  select.replaceChildren(h("option", { value: "" }, first), ...choices.map(([value, text]) => h("option", { value }, text)));
  return select;
}
