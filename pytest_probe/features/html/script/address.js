// What the address says of the page, so that a link shows what its sender sees: filters, order, view and open case.
const address = () => new URLSearchParams(location.hash.slice(1));

// "" removes a name.
function remember(changes) {
  const found = address();
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") found.delete(name);
    else found.set(name, value);
  }
  const text = found.toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}
