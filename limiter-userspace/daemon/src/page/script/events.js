// Drops: the latest, or those that are searched in the log, as episodes of one source, rule and
// reason, from a sample.

// Time between two searches of the log for the same, in milliseconds.
const SEARCH_EVERY = 10_000;

// Names of protocols by their numbers.
const PROTOCOLS = { 1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6" };

// A packet in short: `udp 40000>53 60 bytes eth0`.
function packetOf(last) {
  const protocol = last.protocol === null ? ""
    : `${PROTOCOLS[last.protocol] ?? `protocol ${last.protocol}`} `;
  const ports = last.source_port === null || last.destination_port === null ? ""
    : `${last.source_port}>${last.destination_port} `;
  const way = last.direction === "out" ? "out " : "";
  return clean(`${way}${protocol}${ports}${number(last.bytes)} bytes ${last.interface ?? ""}`);
}

const reasonOf = (row) => (row.would_drop ? "would drop" : clean(row.reason));

// The command that says what becomes of such a packet now.
function explaining({ source, last }) {
  const name = PROTOCOLS[last.protocol];
  const port = (name === "tcp" || name === "udp") && Number.isInteger(last.destination_port);
  const to = port ? ["--to", `${last.destination_port}/${name}`] : [];
  const way = last.direction === "out" ? ["--direction", "out"] : [];
  return command("explain", "--from", address(source), ...way, ...to);
}

class Events {
  constructor(open) {
    const name = (row) => {
      const { direction } = row.last;
      const button = make("button", { type: "button", class: "name mono" },
        nameOf({ source: row.source, direction }));
      button.addEventListener("click", () => open(row.source, button));
      return button;
    };
    this.table = new Table(byId("events-table"), "Events", [
      { head: "Source", make: name },
      {
        head: "Began", half: true, text: (row) => local(row.began), sub: (row) => ago(new Date(row.began)),
        title: (row) => moment(row.began), by: (row) => row.began,
      },
      {
        head: "Lasted", number: true, text: (row) => span(row.seconds), by: (row) => row.seconds,
        sub: (row) => (row.ended ? "ended" : "ongoing"),
      },
      { head: "Reason", half: true, text: reasonOf },
      { head: "By", text: (row) => titled(row.rule ?? dropper(row), row.rule_name) },
      {
        head: "Reported", number: true, text: (row) => number(row.sampled),
        by: (row) => row.sampled,
      },
      { head: "Last packet", text: (row) => packetOf(row.last) },
      { head: "Copy", make: (row) => copyButton(explaining(row)) },
    ], {
      kind: (row) => (row.ended ? "" : row.would_drop ? "full" : "dropping"),
      words: (row) => [row.source, row.rule, row.rule_name, reasonOf(row), packetOf(row.last)],
    });
  }

  // Has what is typed searched, and the latest shown again after a reset.
  listen(again) {
    const form = byId("events-filter");
    this.search = new Seldom(SEARCH_EVERY, () => ask("/v1/events", this.asked));
    const search = (asked) => {
      this.asked = asked;
      this.search.again();
      again();
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      search(askedIn(new FormData(form)));
    });
    form.addEventListener("reset", () => search(null));
  }

  // Shows the same once more, as of another search.
  again() {
    if (this.table.shown) this.table.show(...this.table.shown);
  }

  // What is to be shown now. A search that is refused is reported, and given up.
  async answer() {
    if (!this.asked) return ask("/v1/events");
    try {
      return await this.search.now();
    } catch (error) {
      if (!(error instanceof Refused && error.status === 400)) throw error;
      this.asked = null;
      say(`Not searched: ${error.message}`);
      return ask("/v1/events");
    }
  }

  draw({ episodes, counts, reach }) {
    const key = (row) => JSON.stringify([row.source, row.rule, row.reason, row.began]);
    const shown = this.table.show(episodes, key);
    const words = reach ? reachOf(reach, episodes.length) : latestOf(counts, episodes.length);
    if (shown < episodes.length) words.unshift(partOf(shown, episodes.length, "episode"));
    tell(byId("events-note"), words.filter(Boolean).join(" "));
  }
}

// The question that a form asks; none if nothing is typed.
function askedIn(form) {
  const time = (name) => (form.get(name) ? new Date(form.get(name)).toISOString() : "");
  const asked = { source: form.get("source").trim(), rule: form.get("rule").trim(),
    since: time("since"), until: time("until") };
  return Object.values(asked).some(Boolean) ? asked : null;
}

// Words about the latest drops.
function latestOf(counts, episodes) {
  const words = [
    [counts.over_budget, "more were only counted: over --events-per-second"],
    [counts.lost, "were lost: nobody had read those before"],
    [counts.forgotten, "episodes were forgotten: too many at once"],
  ].filter(([count]) => count > 0).map(([count, text]) => `${number(count)} ${text}.`);
  const none = episodes === 0 ? "No drops were reported." : "";
  const sent = `A sample: ${number(counts.sent)} drops were reported since the maps were made.`;
  return [none, sent, ...words];
}

// Words about a search: what was not found is not denied where it is not known.
function reachOf(reach, episodes) {
  if (reach.unknown_rule && episodes === 0) {
    return ["No rule in force or in the log is called that."];
  }
  const whole = reach.unnamed === 0 && reach.gaps.length === 0 && reach.damaged === 0
    && reach.left_out === 0 && !reach.trouble;
  const none = whole
    ? "No such drop: all drops of that time, as far as the log reaches, were reported."
    : "No such drop was reported, but not all drops were:";
  return [
    episodes === 0 ? none : "The reported drops are a sample: at least as many were dropped.",
    `The log reaches from ${moment(reach.from)} to ${moment(reach.to)}.`,
    reach.unnamed > 0
      ? `Up to ${number(reach.unnamed)} drops of about that time are in no episode, and may be of `
        + "any source." : "",
    ...reach.gaps.map(({ from, to }) =>
      `Nothing was written from ${moment(from)} to ${moment(to)}.`),
    reach.more_gaps > 0 ? `${number(reach.more_gaps)} more gaps are not listed.` : "",
    reach.damaged > 0 ? `${number(reach.damaged)} lines of the log are damaged.` : "",
    reach.left_out > 0 ? `${number(reach.left_out)} earlier episodes are left out.` : "",
    reach.trouble ? `The log is not whole at present: ${clean(reach.trouble)}.` : "",
  ];
}
