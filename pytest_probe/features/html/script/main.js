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
  remember({ view: name === "Cases" ? "" : name });
  return current;
}

const views = new Map();
if (cases.length) {
  views.set("Cases", () => new CasesView());
  if (cases.some((one) => one.pair)) views.set("A against B", () => new AgainstView());
  views.set("Where it begins", () => new SequenceView());
  views.set("APIs", () => new ApisView((api) => show("Cases").only("api", api)));
  if (data("probe-beside")) views.set("Two runs", () => new RunsView(data("probe-beside")));
  if (TimesView.isThere()) views.set("Times", () => new TimesView());
  bar.hidden = false;
  bar.append(...[...views.keys()].map((name) => h("button", { type: "button", onclick: () => show(name) }, name)));
  document.body.append(dialog);
  for (const item of document.querySelectorAll("[data-group]")) {
    const words = item.lastElementChild;
    words.replaceWith(h("button", { type: "button", class: "grouped", onclick: () => show("Cases").only("group", item.dataset.group) }, words.textContent));
  }
  const follow = () => {
    const asked = address();
    show("Cases").follow(asked);
    if (views.has(asked.get("view"))) show(asked.get("view"));
    const linked = cases[asked.get("case") || -1];
    if (linked) openCase(linked, null);
    else if (dialog.open) dialog.close();
  };
  addEventListener("hashchange", follow);
  follow();
} else if (data("probe-beside")) {
  app.append(new RunsView(data("probe-beside")).element);
}
