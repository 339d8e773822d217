// The views, made when they are first shown.
document.documentElement.classList.add("scripted");
const theme = document.getElementById("theme");
theme.closest("label").hidden = false;
theme.addEventListener("change", () => {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  if (current && current.draw) current.draw();
});

const app = document.getElementById("app");
const bar = document.getElementById("views");
const made = new Map();
let current = null;

function show(name) {
  if (!made.has(name)) {
    made.set(name, views.get(name)());
    app.append(made.get(name).element);
  }
  for (const [other, view] of made) view.element.hidden = other !== name;
  for (const button of bar.children) {
    if (button.textContent === name) button.setAttribute("aria-current", "page");
    else button.removeAttribute("aria-current");
  }
  current = made.get(name);
  current.appear();
  return current;
}

const views = new Map();
if (cases.length) {
  views.set("Cases", () => new CasesView());
  views.set("Where it begins", () => new SequenceView());
  views.set("APIs", () => new ApisView((api) => show("Cases").only("api", api)));
  if (data("probe-beside")) views.set("Two runs", () => new RunsView(data("probe-beside")));
  if (TimesView.isThere()) views.set("Times", () => new TimesView());
  bar.hidden = false;
  bar.append(...[...views.keys()].map((name) => h("button", { type: "button", onclick: () => show(name) }, name)));
  document.body.append(dialog);
  show("Cases");
  const linked = /^#case=(\d+)$/.exec(location.hash);
  if (linked && cases[linked[1]]) openCase(cases[linked[1]], null);
} else if (data("probe-beside")) {
  app.append(new RunsView(data("probe-beside")).element);
}
