// The rules for requests, of each `limiter serve` that reports to the daemon.

class Requests {
  constructor() {
    const rate = (of) => (row) => perSecond(row.rates?.[of] ?? NaN);
    const by = (of) => (row) => row.rates?.[of];
    this.table = new Table(byId("requests-table"), "Requests", [
      {
        head: "Rule", text: (row) => clean(`${row.domain}: ${row.name ?? row.rule}`),
        sub: (row) => clean(row.name ? row.rule : ""), by: (row) => `${row.domain}: ${row.rule}`,
      },
      {
        head: "Refused/s", number: true, text: rate("refused"), by: by("refused"),
        warn: (row) => row.rates?.refused > 0,
      },
      { head: "Passed/s", number: true, text: rate("passed"), by: by("passed") },
      { head: "Over, passed/s", number: true, text: rate("over"), by: by("over") },
      { head: "Refused", number: true, text: (row) => number(wasRefused(row)), by: wasRefused },
      { head: "Passed", number: true, text: (row) => number(wasPassed(row)), by: wasPassed },
      {
        head: "Over, passed", number: true, text: (row) => number(wasOver(row)), by: wasOver,
        title: () => "Over a soft limit, in shadow mode, or kept in a queue, and passed",
      },
      { head: "Process", number: true, text: (row) => String(row.pid) },
    ], {
      kind: (row) => (row.silent ? "full" : row.rates?.refused > 0 ? "dropping" : ""),
      words: (row) => [row.domain, row.rule, row.name, String(row.pid)],
    });
  }

  draw({ processes }) {
    const rows = processes.flatMap(({ pid, silent, rules }) =>
      rules.map((row) => ({ ...row, pid, silent })));
    rows.sort((a, b) => (b.rates?.refused ?? 0) - (a.rates?.refused ?? 0)
      || wasRefused(b) - wasRefused(a));
    const found = this.table.show(rows, (row) => `${row.pid} ${row.domain} ${row.rule}`,
      MOST_RULES);
    tell(byId("requests-note"), rows.length === 0 ? "No limiter serve reports."
      : [partOf(found, rows.length, "rule"),
        found > MOST_RULES ? `The ${number(MOST_RULES)} with the most refused are shown.` : "",
      ].filter(Boolean).join(" "));
    // The lines stay the same elements, so that a selection stays.
    const lines = byId("requests-processes");
    processes.forEach((process, index) => {
      const line = lines.children[index] ?? lines.appendChild(make("p"));
      line.className = process.silent ? "near" : "quiet";
      tell(line, processWords(process));
    });
    while (lines.children.length > processes.length) lines.lastChild.remove();
  }
}

const wasOver = ({ counts }) => counts.over_soft + counts.shadow + counts.queued;
const wasRefused = ({ counts }) => counts.over + counts.full_refused;
const wasPassed = (row) =>
  row.counts.within + row.counts.unlimited + row.counts.full_passed + wasOver(row);

// A line about a process.
function processWords({ listen, pid, age_ms: age, silent, keys, max_keys: most, others }) {
  return clean([
    `${listen.join(", ")} (pid ${pid}): ${number(keys)} of ${number(most)} keys in use`,
    others.rules > 0 ? `${counted(others.rules, "more rule")} not shown:`
      + ` ${number(wasPassed(others))} passed, ${number(wasRefused(others))} refused` : "",
    silent ? `no report for ${span(age / 1000)}: these numbers are old` : "",
  ].filter(Boolean).join("; "));
}
