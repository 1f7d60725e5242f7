// The sources that stand out, and what was seen of each while this page was open.

// Sources of which rates are kept.
const KEPT = 500;

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
        head: "Dropped/s", number: true,
        text: (row) => droppedOf(row, perSecond(row.dropped_per_second)),
      },
      { head: "Dropped", number: true, text: (row) => droppedOf(row, number(row.dropped)) },
      {
        head: "Passed/s", number: true,
        text: (row) => passedOf(row, perSecond(row.passed_per_second)),
      },
      { head: "Passed", number: true, text: (row) => passedOf(row, number(row.passed)) },
      { head: "Used", number: true, text: (row) => percent(row.nearness) },
      { head: "Limit", text: (row) => clean(row.limit ?? "-") },
      { head: "Rule", text: (row) => titled(row.rule, row.rule_name) },
      { head: "State", text: stateOf },
      {
        head: "Command",
        make: (row) => copyButton(command("show", place(row.source)), "Copy show"),
      },
    ]);
    this.others = new Table(byId("others-table"), "Sources that other rules drop", [
      { head: "Source", make: name },
      { head: "Dropped", number: true, text: (row) => part(number(row.dropped), !row.exact) },
      { head: "Reason", text: (row) => clean(row.reason) },
      { head: "Rule", text: (row) => titled(row.rule, row.rule_name) },
      {
        head: "Command",
        make: (row) => copyButton(command("show", place(row.source)), "Copy show"),
      },
    ]);
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
    this.table.show(top.sources, (row) => row.source);
    const others = top.by_other_rules;
    this.others.show(others, (row) => JSON.stringify([row.source, row.rule, row.reason]));
    byId("others").hidden = others.length === 0;
    const [v4, v6] = [number(top.tracked_v4), number(top.tracked_v6)];
    const nobody = top.sources.length === 0 ? "Nobody stands out by this order. " : "";
    tell(byId("sources-note"), `${nobody}${v4} IPv4 and ${v6} IPv6 sources are tracked.`);
  }
}

// Counts of a source, which may be a part of its packets.
const droppedOf = (row, text) => part(text, row.dropped_at_least);
const passedOf = (row, text) => part(text, row.passed_at_least);

// The state of a source beside its rule.
function stateOf(row) {
  if (row.listed) return row.listed === "deny" ? "denied" : "allowed";
  return row.banned_seconds ? `banned, ${span(row.banned_seconds)}` : "";
}

