// The sources that stand out, and what was seen of each while this page was open.

// Sources of which rates are kept.
const KEPT = 500;

// Rows of a table, and rows that are asked for to be searched.
const ROWS = 20;
const SEARCHED_ROWS = 400;

class Sources {
  constructor(open) {
    this.histories = new Map();
    const name = (row) => {
      const button = make("button", { type: "button", class: "name mono" }, clean(row.source));
      button.addEventListener("click", () => open(row.source, button));
      return button;
    };
    this.table = new Table(byId("sources-table"), "Sources", [
      { head: "Source", make: name },
      {
        head: "Dropped/s", number: true, warn: (row) => row.dropped_per_second > 0,
        text: (row) => droppedOf(row, perSecond(row.dropped_per_second)),
        by: (row) => row.dropped_per_second,
      },
      {
        head: "Dropped", number: true, by: (row) => row.dropped,
        text: (row) => droppedOf(row, number(row.dropped)),
      },
      {
        head: "Passed/s", number: true, by: (row) => row.passed_per_second,
        text: (row) => passedOf(row, perSecond(row.passed_per_second)),
      },
      {
        head: "Passed", number: true, by: (row) => row.passed,
        text: (row) => passedOf(row, number(row.passed)),
      },
      {
        head: "Used", number: true, make: () => make("div", { class: "meter" }, make("i"),
          make("span")), set: setUsed, by: (row) => row.nearness,
      },
      { head: "Limit", text: (row) => clean(row.limit ?? "-") },
      { head: "Rule", text: (row) => titled(row.rule, row.rule_name) },
      { head: "State", text: stateOf },
      { head: "Copy", make: (row) => copyButton(command("show", place(row.source))) },
    ], { kind: kindOf, words: wordsOf });
    this.others = new Table(byId("others-table"), "Sources that other rules drop", [
      { head: "Source", make: name },
      { head: "Dropped", number: true, text: (row) => part(number(row.dropped), !row.exact) },
      { head: "Reason", text: (row) => clean(row.reason) },
      { head: "Rule", text: (row) => titled(row.rule, row.rule_name) },
      { head: "Copy", make: (row) => copyButton(command("show", place(row.source))) },
    ], { words: (row) => (prefixSearched() ? [searched()] : [row.source, row.rule, row.rule_name,
      row.reason]) });
  }

  // Notes the rates of the rows of an answer.
  note(top, at) {
    for (const row of top.watched ? [...top.sources, top.watched] : top.sources) {
      const history = this.of(row.source);
      if (history.seen !== at) history.push(at, row.passed_per_second, row.dropped_per_second);
    }
    if (this.histories.size <= KEPT) return;
    const oldest = [...this.histories].sort(([, a], [, b]) => a.seen - b.seen);
    for (const [source] of oldest.slice(0, this.histories.size - KEPT)) {
      this.histories.delete(source);
    }
  }

  // The history of a source, begun with the first question for it.
  of(source) {
    if (!this.histories.has(source)) this.histories.set(source, new History());
    return this.histories.get(source);
  }

  draw(top) {
    const shown = this.table.show(top.sources, (row) => row.source, ROWS);
    const others = top.by_other_rules;
    const below = this.others.show(others,
      (row) => JSON.stringify([row.source, row.rule, row.reason]), ROWS);
    byId("others").hidden = below === 0;
    const [v4, v6] = [number(top.tracked_v4), number(top.tracked_v6)];
    const nobody = shown > 0 ? ""
      : searched() ? `No source that stands out matches “${clean(searched())}”. `
        : "No source stands out by this order. ";
    tell(byId("sources-note"), `${nobody}${v4} IPv4 and ${v6} IPv6 sources are tracked.`);
  }
}

// Texts of a row that are searched. The daemon has looked for a prefix already.
const wordsOf = (row) => (prefixSearched() ? [searched()]
  : [row.source, row.rule, row.rule_name, row.limit, stateOf(row)]);

// The colour of a row: whether packets of it are dropped now, or nothing is left of its limit.
function kindOf(row) {
  if (row.dropped_per_second > 0) return "dropping";
  return row.nearness >= 0.9 ? "full" : "";
}

// The used share of the limit as a bar.
function setUsed(cell, { nearness: utilization }) {
  const [bar, text] = cell.firstChild.children;
  bar.style.width = `${Math.min(utilization ?? 0, 1) * 100}%`;
  cell.firstChild.classList.toggle("high", utilization >= 0.9);
  tell(text, percent(utilization));
}

// Counts of a source, which may be a part of its packets.
const droppedOf = (row, text) => part(text, row.dropped_at_least);
const passedOf = (row, text) => part(text, row.passed_at_least);

// The state of a source beside its rule.
function stateOf(row) {
  if (row.listed) return row.listed === "deny" ? "denied" : "allowed";
  return row.banned_seconds ? `banned, ${span(row.banned_seconds)}` : "";
}

