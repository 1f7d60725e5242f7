// The rules in force: what each passes and drops now, and how near its sources come to it.

// Rules in the table: those that drop most.
const MOST_RULES = 200;

// Answers about a limit, in words and colours.
const FITS = {
  too_tight: ["too tight", "bad"], loose: ["loose", "near"], fitting: ["fits", "good"],
};

class Rules {
  constructor() {
    this.before = null;
    this.table = new Table(byId("rules-table"), "Rules", [
      {
        head: "Rule", text: (row) => clean(row.rule_name ?? row.rule), by: (row) => row.rule,
        sub: (row) => (row.rule_name ? clean(row.rule) : row.budget ? "budget" : ""),
      },
      {
        head: "Dropped/s", number: true, warn: (row) => row.rates[1] > 0,
        text: (row) => perSecond(row.rates[1]), sub: (row) => bits(row.rates[3]),
        by: (row) => row.rates[1],
      },
      {
        head: "Passed/s", number: true, text: (row) => perSecond(row.rates[0]),
        sub: (row) => bits(row.rates[2]), by: (row) => row.rates[0],
      },
      {
        head: "Dropped", number: true, text: (row) => number(row.dropped.packets),
        sub: (row) => bytes(row.dropped.bytes), by: (row) => row.dropped.packets,
      },
      {
        head: "Passed", number: true, text: (row) => number(row.passed.packets),
        sub: (row) => bytes(row.passed.bytes), by: (row) => row.passed.packets,
      },
      {
        head: "Over, passed", number: true, text: (row) => number(overOf(row)), by: overOf,
        title: () => "Over the limit, and passed: in shadow mode, marked or redirected",
      },
      { head: "How near its sources are", make: () => make("div"), set: setUtilization },
      { head: "Copy", make: (row) => copyButton(recording(row)) },
    ], {
      kind: (row) => (row.rates[1] > 0 ? "dropping"
        : row.near?.answer === "too_tight" ? "full" : ""),
      words: (row) => [row.rule, row.rule_name, row.budget && "budget"],
    });
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
      const now = [row.passed.packets, row.dropped.packets, 8 * row.passed.bytes,
        8 * row.dropped.bytes];
      const then = this.before?.counts.get(keyOf(row));
      row.rates = now.map((count, index) => (then ? rate(then[index], count, nanos) : NaN) ?? NaN);
      counts.set(keyOf(row), now);
    }
    this.before = { at, counts, of };
    return rules;
  }

  // Takes how near the sources are to the rules, for the rows that are there and the next ones.
  take_near(utilization) {
    this.near = utilization;
    if (this.drawn) this.show(...this.drawn);
  }

  draw(stats, at, of) {
    // A rate takes two looks.
    const first = this.before?.of !== of;
    this.show(this.take(stats, at, of), first);
  }

  show(rules, first) {
    this.drawn = [rules, first];
    const near = new Map(this.near?.rules.map((rule) => [rule.rule, rule]));
    const order = (row) => [row.rates[1] || 0, row.dropped.packets, row.passed.packets];
    for (const row of rules) {
      // The name of a budget has its kind before it there.
      row.near = near.get(row.rule) ?? near.get(`budget ${row.rule}`);
    }
    rules.sort((a, b) => {
      const [left, right] = [order(a), order(b)];
      const index = left.findIndex((value, index) => value !== right[index]);
      return index < 0 ? 0 : right[index] - left[index];
    });
    const found = this.table.show(rules, keyOf, MOST_RULES);
    tell(byId("rules-note"), [
      partOf(found, rules.length, "rule", "rules and budgets"),
      found > MOST_RULES ? `The ${number(MOST_RULES)} that drop most are shown.` : "",
      first ? "Measuring: rates take two looks." : "",
      this.near ? utilizationNote(this.near) : "",
    ].filter(Boolean).join(" "));
  }
}

const keyOf = (row) => (row.budget ? `budget ${row.rule}` : row.rule);
const overOf = (row) => row.shadowed.packets + row.marked.packets;

// The command that records what a rule drops.
const recording = (row) =>
  command("capture --dropped", option("--rule", row.rule_name ?? row.rule),
    "--count 100 -w rule.pcapng");

// How old the utilization is, and of how many sources.
function utilizationNote(utilization) {
  const part = utilization.one_of > 1 ? `, one in ${number(utilization.one_of)} followed` : "";
  const more = utilization.left_out ? ", and there are more rules than are looked at" : "";
  return "How near: each bar is a tenth of the limit, from 0 to 100 % used, as high as the number"
    + ` of sources there (on a logarithmic scale); read ${span(utilization.read_seconds_ago)} ago in`
    + ` ${number(utilization.buckets)} buckets${part}${more}.`;
}

// A bar for each tenth of the limit, as high as the logarithm of how many have used so much; below
// it whether the limit fits, where that is known.
function setUtilization(cell, row) {
  const tenths = row.near?.tenths;
  const box = cell.firstChild;
  if (!Array.isArray(tenths) || tenths.length === 0) {
    box.replaceChildren();
    return;
  }
  const [fit, kind] = FITS[row.near.answer] ?? [clean(row.near.answer), "quiet"];
  const evidence = clean(row.near.evidence ?? "");
  const words = tenths.map((count, tenth) =>
    `${tenth * 10} to ${tenth * 10 + 10} %: ${number(count)}`);
  const now = JSON.stringify([words, fit, evidence]);
  if (box.dataset.of === now) return;
  box.dataset.of = now;
  const most = Math.log1p(Math.max(...tenths));
  const bars = tenths.map((count) => {
    const bar = make("i");
    bar.style.height = most > 0 ? `${(100 * Math.log1p(count)) / most}%` : "0";
    return bar;
  });
  const known = row.near.answer !== "not_known_yet";
  box.replaceChildren(
    make("div", { class: "tenths", role: "img", "aria-label": words.join(", "),
      title: words.join("\n") }, ...bars),
    make("small", { class: "ends" }, make("span", {}, "0"), make("span", {}, "100\u00a0%")),
    make("small", {}, `${number(row.near.tracked)} tracked`),
    known ? make("small", { title: evidence }, make("strong", { class: kind }, fit),
      evidence ? `: ${evidence}` : "") : "");
}
