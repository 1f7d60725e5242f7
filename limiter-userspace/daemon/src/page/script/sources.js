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
      const button = make("button", { type: "button", class: "name mono" }, nameOf(row));
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
      { head: "By", text: byOf, title: everyBy },
      { head: "Reason", half: true, text: (row) => clean(row.by[0]?.reason ?? "-") },
      {
        head: "Passed/s", number: true, by: (row) => row.passed_per_second,
        text: (row) => passedOf(row, perSecond(row.passed_per_second)),
      },
      {
        head: "Since", half: true,
        text: (row) => (row.by[0]?.since ? local(row.by[0].since) : "-"),
      },
      {
        head: "Dropped", number: true, by: (row) => row.dropped,
        text: (row) => droppedOf(row, number(row.dropped)),
      },
      {
        head: "Passed", number: true, by: (row) => row.passed,
        text: (row) => passedOf(row, number(row.passed)),
      },
      {
        head: "Used", number: true, make: () => make("div", { class: "meter" }, make("i"),
          make("span")), set: setUsed, by: (row) => row.utilization,
      },
      { head: "State", text: stateOf },
      { head: "Copy", make: (row) => copyButton(command("show", place(row.source))) },
    ], { kind: kindOf, words: wordsOf });
  }

  // Notes the rates of the rows of an answer.
  note(top, at) {
    // What comes in and what goes out is one chart.
    const rates = new Map();
    const watched = new Set(top.watched.map((row) => row.source));
    const others = top.sources.filter((row) => !watched.has(row.source));
    for (const row of [...others, ...top.watched]) {
      const [passed, dropped] = rates.get(row.source) ?? [0, 0];
      rates.set(row.source, [plus(passed, row.passed_per_second),
        plus(dropped, row.dropped_per_second)]);
    }
    for (const [source, [passed, dropped]] of rates) {
      const history = this.of(source);
      if (history.seen !== at) history.push(at, passed, dropped);
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
    const shown = this.table.show(top.sources, nameOf, ROWS);
    const [v4, v6] = [number(top.tracked_v4), number(top.tracked_v6)];
    const order = byId("order").value;
    // It is of the rule on sources, whatever drops.
    this.table.element.classList.toggle("used", order === "utilization");
    const byDrops = ["drop-rate", "dropped"].includes(order);
    const quiet = byDrops && !searched() && top.lose_nothing > 0
      ? `${shown > 0 ? "and " : ""}${number(top.lose_nothing)} of which no drop was seen. ` : "";
    const lists = top.dropped_by?.lists ?? 0;
    const listed = byDrops && !searched() && lists > 0 ? `Lists and bans dropped ${number(lists)}`
      + " in all, of which the rows have what events reported. " : "";
    const nobody = shown > 0 ? ""
      : searched() ? `No source that stands out matches “${clean(searched())}”. `
        : byDrops ? "No drop of any source was seen. " : "No source stands out by this order. ";
    const tracked = `${v4} IPv4 and ${v6} IPv6 sources are tracked.`;
    tell(byId("sources-note"), `${nobody}${quiet}${listed}${tracked}`);
    byId("sources-try").hidden = shown > 0 || Boolean(searched());
  }
}

// A rate with another one; none where one is not known.
const plus = (one, other) => (Number.isFinite(one) && Number.isFinite(other) ? one + other : null);

// The source, with the direction where that is not the usual one.
function nameOf(row) {
  const way = { out: " out", both: " in+out" }[row.direction] ?? "";
  return clean(row.source) + way;
}

// The name of what drops: a rule, a budget, a list or a ban.
function dropper(by) {
  const list = { denied: "deny list", banned: "ban", martian: "martians" }[by.reason];
  return clean(by.rule_name ?? inShort(by.rule) ?? list ?? "-");
}

// The keys of a rule with its port as `--port` takes it: `27015/udp`.
const inShort = (rule) => rule?.replace(/\bprotocol=(\S+) destination_port=(\S+)/, "$2/$1");

// The name of what drops most of a source, and the number of the others: of those that drop packets
// of it now, where any does.
function byOf({ by, dropped_per_second: lost }) {
  if (by.length === 0) return "-";
  const more = by.slice(1).filter((each) => !(lost > 0) || each.dropped_per_second > 0).length;
  return more === 0 ? dropper(by[0]) : `${dropper(by[0])} +${more}`;
}

// What drops packets of a source, each with its number.
const everyBy = ({ by }) => by.map((each) => {
  const now = Number.isFinite(each.dropped_per_second)
    ? `${part(perSecond(each.dropped_per_second), !each.exact)}/s, ` : "";
  return `${titled(each.rule ?? dropper(each), each.rule_name)}: ${now}`
    + `${part(number(each.dropped), !each.exact)} in all (${clean(each.reason)})`;
}).join("\n");

// Texts of a row that are searched. The daemon has looked for a prefix already.
const wordsOf = (row) => (prefixSearched() ? [searched()]
  : [row.source, row.rule, row.rule_name, row.limit, stateOf(row),
    ...row.by.flatMap((by) => [by.rule, by.rule_name, by.reason, dropper(by)])]);

// The colour of a row: whether packets of it are dropped now, or nothing is left of its limit.
function kindOf(row) {
  if (row.dropped_per_second > 0) return "dropping";
  return row.utilization >= 0.9 ? "full" : "";
}

// The used share of the limit as a bar.
function setUsed(cell, { utilization }) {
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

