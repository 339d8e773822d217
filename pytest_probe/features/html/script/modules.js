// Pairs in the order of the run, and below the modules that made them.
const natural = new Intl.Collator("en", { numeric: true }).compare;

// The path of the module that an entry is of; "" of a call.
function ownPath(one) {
  if (!one.api.startsWith("Module.")) return "";
  if (!one.name.startsWith("Module.")) return one.api.slice("Module.".length);
  const parts = one.api.replace(/\.parameters_grad$/, "").split(".").slice(1);
  return parts.slice(0, -1).join(".") || parts[0];
}

// Modules that have no place in a dump of calls come behind the last of their calls, the innermost first.
function pairsInOrder(own) {
  const found = inSequence(own.filter((one) => one.place >= 0)).map((point) => ({ ...point, path: ownPath(point.one) || point.one.module }));
  const last = new Map();
  for (const point of found) {
    const parts = point.path.split(".");
    parts.forEach((_, depth) => last.set(`${point.one.direction} ${parts.slice(0, depth + 1).join(".")}`, point));
  }
  const unplaced = own.filter((one) => one.place < 0).map((one) => {
    const path = ownPath(one) || one.module;
    const call = last.get(`${one.direction} ${path}`);
    return { one, path, at: (call ? call.at : found.length) + 0.5, part: call ? call.part : one.direction === "backward" ? 1 : 3 };
  });
  const depth = (point) => point.path.split(".").length;
  unplaced.sort((one, other) => one.at - other.at || depth(other) - depth(one) || natural(one.one.name, other.one.name));
  // Behind the last call of all, those of another part keep the parts together.
  return [...found, ...unplaced].sort((one, other) => one.part - other.part || one.at - other.at);
}

const PART_NAMES = ["forward", "backward", "after the backward", "without a place"];

// The modules as a tree below the parts of the run, each with the pairs in it, the gravest status and the largest gap.
function moduleTree(points) {
  const root = { items: [], depth: -1 };
  const nodes = new Map();
  const nodeOf = (key, name, above) => {
    if (!nodes.has(key)) {
      nodes.set(key, { name, above, depth: above.depth + 1, items: [], total: 0, own: 0, status: "equal", gap: 0, isOpen: above === root });
      above.items.push(nodes.get(key));
    }
    return nodes.get(key);
  };
  for (const point of points) {
    let node = nodeOf(String(point.part), PART_NAMES[point.part], root);
    let key = String(point.part);
    for (const name of point.path ? point.path.split(".") : []) {
      key += `.${name}`;
      node = nodeOf(key, name, node);
    }
    point.above = node;
    point.depth = node.depth + 1;
    node.items.push(point);
    for (; node !== root; node = node.above) {
      const { status, gap } = point.one.pair;
      node.total += 1;
      node.own += status === "own";
      if (GRAVEST.indexOf(status) < GRAVEST.indexOf(node.status)) node.status = status;
      if (status !== "random" && rank(gap) > rank(node.gap)) node.gap = gap;
      node.isOpen ||= isSuspect(point.one);
    }
  }
  return root;
}

// The rows of a tree from top to bottom; those in closed modules only where all are asked for.
function rowsOf(node, wanted, all, found = []) {
  for (const item of node.items) {
    if (item.one) {
      if (wanted(item.one)) found.push(item);
      continue;
    }
    const before = found.length;
    found.push(item);
    if (all || item.isOpen) rowsOf(item, wanted, all, found);
    if (all && found.length === before + 1) found.pop();
  }
  return found;
}
