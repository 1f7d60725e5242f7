// Elements. Text goes in as text nodes only: there is no markup in strings here.

const byId = (id) => document.getElementById(id);

// An element with attributes and children: elements, texts, or nothing.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Sets the text of an element, if it is another one: a selection stays otherwise.
function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Puts elements in the place of the children, and the focus back where it was.
function putAll(parent, children) {
  const same = children.length === parent.children.length
    && children.every((child, index) => parent.children[index] === child);
  if (same) return;
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  parent.replaceChildren(...children);
  if (focused && focused.isConnected) focused.focus({ preventScroll: true });
}

// Says something at the foot of the page, aloud for those who do not see it.
let unsaid;
function say(text) {
  tell(byId("said"), text);
  clearTimeout(unsaid);
  unsaid = setTimeout(() => tell(byId("said"), ""), 6000);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied: ${text}`);
  } catch {
    say(`The browser does not let this page copy. The command: ${text}`);
  }
}

// A button that copies a command; nothing where there is none.
function copyButton(text, label = "Copy") {
  if (text === null) return null;
  const button = make("button", { type: "button", title: text, "aria-label": `Copy: ${text}` });
  button.append(label);
  button.addEventListener("click", () => copy(text));
  return button;
}

// Names with values.
function facts(rows) {
  const list = make("dl");
  for (const [name, value] of rows) {
    if (value === null || value === undefined) continue;
    list.append(make("dt", {}, name), make("dd", {}, value));
  }
  return list;
}

// A table whose rows stay the same elements from one reading to the next.
//
// A column is { head, text } or { head, make }, with `number` for figures: `text` gives the text of
// a row's cell at each reading, `make` its element once, and `set` changes that.
class Table {
  constructor(parent, caption, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.body = make("tbody");
    const heads = columns.map((column) =>
      make("th", { scope: "col", class: column.number ? "number" : null }, column.head));
    this.element = make("table", { class: "rows" },
      make("caption", { class: "hidden" }, caption),
      make("thead", {}, make("tr", {}, ...heads)), this.body);
    parent.append(this.element);
  }

  row(key, data) {
    const cells = this.columns.map((column, index) => {
      const kind = [column.number && "number", index === 0 && "first"];
      const cell = make("td", { "data-head": column.head, class: kind.filter(Boolean).join(" ") });
      if (column.make) cell.append(...[column.make(data)].filter(Boolean));
      return cell;
    });
    return { element: make("tr", {}, ...cells), cells };
  }

  // Shows rows by their keys, in this order.
  show(list, keyOf) {
    const rows = new Map();
    for (const data of list) {
      const key = keyOf(data);
      const row = this.rows.get(key) ?? this.row(key, data);
      this.columns.forEach((column, index) => {
        if (column.text) tell(row.cells[index], column.text(data));
        if (column.set) column.set(row.cells[index], data);
      });
      rows.set(key, row);
    }
    this.rows = rows;
    putAll(this.body, [...rows.values()].map((row) => row.element));
    this.element.hidden = rows.size === 0;
  }
}

