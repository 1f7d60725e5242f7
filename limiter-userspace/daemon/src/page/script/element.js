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

// Sets the text of an element, if it is another one: a selection stays otherwise. A long name may
// be wrapped behind a slash, so that no number in it is broken.
function tell(element, text) {
  if (element.textContent === text) return;
  const parts = text.length > 24 ? text.split(/(?<=\/)/) : [text];
  element.replaceChildren(...parts.flatMap((part, index) =>
    (index > 0 ? [make("wbr"), part] : [part])));
}

// Sets a text of which what stands in back-ticks is code.
function tellCode(element, text) {
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.replaceChildren(...text.split("`").map((part, index) =>
    (index % 2 === 1 ? make("code", {}, part) : part)));
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

// A button that copies a command; nothing where there is none. Without a label it is a sign.
function copyButton(text, label) {
  if (text === null) return null;
  const button = make("button", { type: "button", title: text, "aria-label": `Copy: ${text}`,
    class: label ? null : "sign" });
  button.append(label ?? draw("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" },
    draw("path", { d: "M5 5V2h9v9h-3M2 5h9v9H2z" })));
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
// A column is { head, text } or { head, make }, with `number` for figures and `half` for what takes
// half of a card on a phone, as figures do: `text` gives the text of a row's cell at each reading, `sub` a quiet line below it, `title` its long form, `make` its
// element once, and `set` changes that. `by` gives what the column is sorted by. `kind` gives the
// colour of a row, and `words` the texts that are searched in it.
class Table {
  constructor(parent, caption, columns, { kind, words } = {}) {
    Object.assign(this, { columns, kind, words });
    this.rows = new Map();
    this.body = make("tbody");
    this.heads = columns.map((column) => {
      const head = make("th", { scope: "col", class: column.number ? "number" : null,
        "data-head": column.head });
      if (!column.by) {
        head.append(column.head);
        return head;
      }
      const button = make("button", { type: "button", class: "sort" }, column.head);
      button.addEventListener("click", () => this.sort(column));
      head.append(button);
      return head;
    });
    this.element = make("table", { class: "rows" },
      make("caption", { class: "hidden" }, caption),
      make("thead", {}, make("tr", {}, ...this.heads)), this.body);
    this.element.hidden = true;
    parent.append(this.element);
  }

  // Sorts by a column: the most first, then the least, then as the rows came.
  sort(column) {
    const turns = [[column, 1], [column, -1], [null, 1]];
    const at = this.sorted === column ? turns.findIndex(([, sign]) => sign === this.sign) : -1;
    [this.sorted, this.sign] = turns[at + 1];
    this.heads.forEach((head, index) => {
      if (this.columns[index] !== this.sorted) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.sign > 0 ? "descending" : "ascending");
    });
    if (this.shown) this.show(...this.shown);
  }

  // The rows in the order that was chosen.
  inOrder(list) {
    if (!this.sorted) return list;
    const { by } = this.sorted;
    const compare = (a, b) => (typeof a === "string" ? b.localeCompare(a) : (a ?? -1) - (b ?? -1));
    return [...list].sort((a, b) => this.sign * compare(by(b), by(a)));
  }

  row(key, data) {
    const cells = this.columns.map((column, index) => {
      const kind = [column.number && "number", column.half && "half", index === 0 && "first",
        column.head === "Copy" && "last"];
      const cell = make("td", { "data-head": column.head, class: kind.filter(Boolean).join(" ") });
      if (column.make) cell.append(...[column.make(data)].filter(Boolean));
      else if (column.sub) cell.append(make("div", {}, make("span"), make("small")));
      return cell;
    });
    return { element: make("tr", {}, ...cells), cells };
  }

  fill(cell, column, data) {
    if (column.text) {
      const [text, sub] = [column.text(data), column.sub?.(data)];
      tell(column.sub ? cell.firstChild.firstChild : cell, text);
      if (column.sub) tell(cell.firstChild.lastChild, sub);
    }
    if (column.title) cell.title = column.title(data);
    if (column.number) cell.classList.toggle("zero", /^≥?0$/.test(column.text?.(data)));
    if (column.warn) cell.classList.toggle("bad", column.warn(data));
    if (column.set) column.set(cell, data);
  }

  // Shows the rows that are searched by their keys, at most `most`; says how many match.
  show(list, keyOf, most = Infinity) {
    this.shown = [list, keyOf, most];
    const rows = new Map();
    const found = this.words ? list.filter((data) => matches(this.words(data))) : list;
    for (const data of this.inOrder(found).slice(0, most)) {
      const key = keyOf(data);
      const row = this.rows.get(key) ?? this.row(key, data);
      this.columns.forEach((column, index) => this.fill(row.cells[index], column, data));
      row.element.className = this.kind?.(data) ?? "";
      rows.set(key, row);
    }
    this.rows = rows;
    putAll(this.body, [...rows.values()].map((row) => row.element));
    this.element.hidden = rows.size === 0;
    return found.length;
  }
}
