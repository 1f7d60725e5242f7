// The interfaces under limits.

class Interfaces {
  constructor() {
    const count = (verdict, unit) => (at) => number(at.counts?.[verdict][unit] ?? NaN);
    const state = (at) => (at.attached ? "limited" : clean(OFF[at.state] ?? at.state));
    this.table = new Table(byId("interfaces-table"), "Interfaces", [
      { head: "Interface", text: (at) => clean(at.was ? `${at.name}, was ${at.was}` : at.name) },
      { head: "Mode", text: (at) => clean(at.mode) },
      { head: "State", text: state },
      { head: "Passed", number: true, text: count("passed", "packets") },
      { head: "Passed bytes", number: true, text: count("passed", "bytes") },
      { head: "Dropped", number: true, text: count("dropped", "packets") },
      { head: "Dropped bytes", number: true, text: count("dropped", "bytes") },
      {
        head: "Command",
        make: () => copyButton(command("doctor"), "Copy doctor"),
      },
    ]);
  }

  draw(status, stats) {
    // Several may be counted together, under all of their names.
    const counts = (name) => stats.interfaces.find((at) => at.interface.split(", ").includes(name));
    const rows = status.interfaces.map((at) => ({ ...at, counts: counts(at.name) }));
    this.table.show(rows, (at) => at.name);
  }
}

