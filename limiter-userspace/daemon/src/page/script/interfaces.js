// The interfaces under limits.

class Interfaces {
  constructor() {
    const rate = (verdict) => (at) => perSecond(at.rates?.[`${verdict}_packets`] ?? NaN);
    const bit = (verdict) => (at) => bits(at.rates?.[`${verdict}_bits`] ?? NaN);
    const count = (verdict) => (at) => number(at.counts?.[verdict].packets ?? NaN);
    const size = (verdict) => (at) => bytes(at.counts?.[verdict].bytes ?? NaN);
    const dropping = (at) => at.rates?.dropped_packets > 0;
    this.table = new Table(byId("interfaces-table"), "Interfaces", [
      {
        head: "Interface", text: (at) => clean(at.was ? `${at.name}, was ${at.was}` : at.name),
        sub: (at) => clean(at.label ?? ""),
      },
      { head: "State", text: stateOfInterface, sub: (at) => clean(at.mode) },
      {
        head: "Dropped/s", number: true, text: rate("dropped"), sub: bit("dropped"),
        warn: dropping,
      },
      { head: "Passed/s", number: true, text: rate("passed"), sub: bit("passed") },
      { head: "Dropped", number: true, text: count("dropped"), sub: size("dropped") },
      { head: "Passed", number: true, text: count("passed"), sub: size("passed") },
      { head: "Copy", make: () => copyButton(command("doctor")) },
    ], {
      kind: (at) => (at.attached ? (dropping(at) ? "dropping" : "") : "full"),
      words: (at) => [at.name, at.label, at.was, at.mode, stateOfInterface(at)],
    });
  }

  draw(status, stats) {
    // Several may be counted together, under all of their names.
    const direction = (at) => (at.mode === "tc out" ? "out" : "in");
    const counts = (at) => stats.interfaces.find((counted) => (
      counted.direction === direction(at) && counted.interface.split(", ").includes(at.name)));
    const rows = status.interfaces.map((at) => ({ ...at, counts: counts(at) }));
    const shown = this.table.show(rows, (at) => `${at.name} ${at.mode}`);
    tell(byId("interfaces-note"), `${partOf(shown, rows.length, "interface")} Rates are of the`
      + " last ten seconds; the totals since the program is on the interface.");
  }
}

const stateOfInterface = (at) => (at.attached ? "limited" : clean(OFF[at.state] ?? at.state));
