// The rules in force: what each passes and drops now, and how near its sources come to it.

// Rules in the table: those that drop most.
const MOST_RULES = 200;

// Answers about a limit, in words and colours.
const FITS = {
  too_tight: ["too tight", "bad"], loose: ["loose", "near"], fitting: ["fitting", "good"],
  not_known_yet: ["not known yet", "quiet"],
};

class Rules {
  constructor() {
    this.before = null;
    this.table = new Table(byId("rules-table"), "Rules", [
      { head: "Rule", text: (row) => titled(row.rule, row.rule_name) },
      { head: "Dropped/s", number: true, text: (row) => perSecond(row.rates[1]) },
      { head: "Dropped", number: true, text: (row) => number(row.dropped.packets) },
      { head: "Passed/s", number: true, text: (row) => perSecond(row.rates[0]) },
      { head: "Passed", number: true, text: (row) => number(row.passed.packets) },
      { head: "Would drop, marked", number: true, text: (row) => number(overOf(row)) },
      { head: "Nearness", make: () => make("div"), set: setNearness },
      { head: "Does it fit?", make: () => make("div"), set: setFit },
      {
        head: "Command",
        make: (row) => copyButton(recording(row), "Copy capture"),
      },
    ]);
  }

  // The rules of an answer, with their rates since the one before, if that was of the same rule set
  // and run of the daemon: under other rules the same name may have another counter.
  take(stats, at, of) {
    const rules = [...stats.rules, ...stats.budgets.map((budget) => ({ ...budget, budget: true }))];
    // After a pause the counts are of a longer time than now.
    const pause = this.before?.of === of ? at - this.before.at : 0;
    const nanos = pause < 15_000 ? pause * 1e6 : 0;
    const counts = new Map();
    for (const row of rules) {
      const now = [row.passed.packets, row.dropped.packets];
      const then = this.before?.counts.get(keyOf(row));
      row.rates = now.map((count, index) => (then ? rate(then[index], count, nanos) : null));
      counts.set(keyOf(row), now);
    }
    this.before = { at, counts, of };
    return rules;
  }

  draw(stats, nearness, at, of) {
    const rules = this.take(stats, at, of);
    const near = new Map(nearness.rules.map((rule) => [rule.rule, rule]));
    const order = (row) => [row.rates[1] ?? 0, row.dropped.packets, row.passed.packets];
    for (const row of rules) {
      // The name of a budget has its kind before it there.
      row.near = near.get(row.rule) ?? near.get(`budget ${row.rule}`);
    }
    rules.sort((a, b) => {
      const [left, right] = [order(a), order(b)];
      const index = left.findIndex((value, index) => value !== right[index]);
      return index < 0 ? 0 : right[index] - left[index];
    });
    this.table.show(rules.slice(0, MOST_RULES), keyOf);
    tell(byId("rules-note"), [
      rules.length > MOST_RULES ? `${number(MOST_RULES)} of ${number(rules.length)} rules, those`
        + " that drop most: limiter stats has all." : `${number(rules.length)} rules and budgets.`,
      nearnessNote(nearness),
    ].join(" "));
  }
}

const keyOf = (row) => (row.budget ? `budget ${row.rule}` : row.rule);
const overOf = (row) => row.shadowed.packets + row.marked.packets;

// The command that records what a rule drops.
const recording = (row) =>
  command("capture --dropped", option("--rule", row.rule_name ?? row.rule),
    "--count 100 -w rule.pcapng");

// How old the nearness is, and of how many sources.
function nearnessNote(nearness) {
  const part = nearness.one_of > 1 ? `, one in ${number(nearness.one_of)} followed` : "";
  const more = nearness.left_out ? ", and there are more rules than are looked at" : "";
  return `Nearness is of ${number(nearness.buckets)} buckets${part}, read`
    + ` ${span(nearness.read_seconds_ago)} ago${more}: of each rule, how many have used 0 to 10 %`
    + " of their limit now, 10 to 20 %, and so on.";
}

// A bar for each tenth of the limit, as high as the logarithm of how many have used so much.
function setNearness(cell, row) {
  const tenths = row.near?.tenths;
  const box = cell.firstChild;
  if (!Array.isArray(tenths) || tenths.length === 0) {
    box.replaceChildren();
    return;
  }
  const most = Math.log1p(Math.max(...tenths));
  const bars = tenths.map((count) => {
    const bar = make("i");
    bar.style.height = most > 0 ? `${(100 * Math.log1p(count)) / most}%` : "0";
    return bar;
  });
  const words = tenths.map((count, tenth) =>
    `${tenth * 10} to ${tenth * 10 + 10} %: ${number(count)}`);
  if (box.firstChild?.title === words.join("\n")) return;
  const chart = make("div", { class: "tenths", role: "img", "aria-label": words.join(", "),
    title: words.join("\n") }, ...bars);
  const tracked = `${number(row.near.tracked)} tracked`;
  box.replaceChildren(chart, make("span", { class: "quiet" }, tracked));
}

function setFit(cell, row) {
  const box = cell.firstChild;
  const { near } = row;
  const [words, kind] = near ? FITS[near.answer] ?? [clean(near.answer), "quiet"] : ["", "quiet"];
  const text = near?.evidence ? `: ${clean(near.evidence)}` : "";
  if (box.textContent === words + text) return;
  box.replaceChildren(make("strong", { class: kind }, words), text);
}

