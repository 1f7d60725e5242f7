// The latest drops: episodes of one source, rule and reason, from a sample.

// Names of protocols by their numbers.
const PROTOCOLS = { 1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6" };

// A packet in short: `udp 40000>53 60 bytes eth0`.
function packetOf(last) {
  const protocol = last.protocol === null ? ""
    : `${PROTOCOLS[last.protocol] ?? `protocol ${last.protocol}`} `;
  const ports = last.source_port === null || last.destination_port === null ? ""
    : `${last.source_port}>${last.destination_port} `;
  return clean(`${protocol}${ports}${number(last.bytes)} bytes ${last.interface ?? ""}`);
}

// The command that says what becomes of such a packet now.
function explaining({ source, last }) {
  const name = PROTOCOLS[last.protocol];
  const port = (name === "tcp" || name === "udp") && Number.isInteger(last.destination_port);
  const to = port ? ["--to", `${last.destination_port}/${name}`] : [];
  return command("explain", "--from", address(source), ...to);
}

class Events {
  constructor(open) {
    const name = (row) => {
      const button = make("button", { type: "button", class: "name mono" }, clean(row.source));
      button.addEventListener("click", () => open(row.source, button));
      return button;
    };
    this.table = new Table(byId("events-table"), "Events", [
      { head: "Source", make: name },
      { head: "Reason", text: (row) => clean(row.reason) },
      { head: "Rule", text: (row) => titled(row.rule, row.rule_name) },
      { head: "Began", text: (row) => clean(row.began) },
      { head: "Lasts", number: true, text: (row) => span(row.seconds) },
      { head: "Sampled", number: true, text: (row) => number(row.sampled) },
      { head: "Now", text: (row) => (row.ended ? "ended" : "goes on") },
      { head: "Last packet", text: (row) => packetOf(row.last) },
      {
        head: "Command",
        make: (row) => copyButton(explaining(row), "Copy explain"),
      },
    ]);
  }

  draw({ episodes, counts }) {
    const key = (row) => JSON.stringify([row.source, row.rule, row.reason, row.began]);
    this.table.show(episodes, key);
    const words = [
      [counts.over_budget, "were only counted: over the budget of events"],
      [counts.lost, "were lost: nobody had read those before"],
      [counts.forgotten, "episodes were forgotten: too many at once"],
    ].filter(([count]) => count > 0).map(([count, text]) => `${number(count)} ${text}.`);
    const none = episodes.length === 0 ? "No drops were told." : "";
    const told = `${number(counts.sent)} drops were told since the maps were made, a sample.`;
    tell(byId("events-note"), [none, told, ...words].filter(Boolean).join(" "));
  }
}

