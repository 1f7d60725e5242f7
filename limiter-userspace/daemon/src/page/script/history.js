// Rates over the last minutes: of all packets, which the daemon keeps, and of a source, as long as
// this page has asked for it.

// The longest time that is kept, in milliseconds.
const KEPT_FOR = 600_000;

// Packets and bits a second that passed and were dropped, each from one time to another.
class History {
  constructor() {
    this.points = [];
    this.marks = [];
    this.seen = 0;
  }

  // Notes packets a second of a source at a time of the browser's clock, in milliseconds; null
  // where there are none.
  push(at, passed, dropped) {
    const from = this.seen;
    this.seen = at;
    // After a pause nothing is known of the time before.
    if (at - from < 15_000) this.points.push({ from, at, packets: { passed, dropped } });
    this.forget(at);
  }

  forget(now) {
    const kept = ({ at }) => at >= now - KEPT_FOR;
    if (this.points.length > 0 && !kept(this.points[0])) this.points = this.points.filter(kept);
    if (this.marks.length > 0 && !kept(this.marks[0])) this.marks = this.marks.filter(kept);
  }

  // The newest rates; none while nothing is known of now.
  get now() {
    return this.points.at(-1);
  }
}

// The rates of all packets and what changed, as the daemon has them.
class Totals extends History {
  async look() {
    const answer = await ask("/v1/history", { after: this.before?.clock_ns ?? null });
    this.take(answer, Date.now());
  }

  take({ clock_ns, began_ns, points, marks }, received) {
    const offset = received - clock_ns / 1e6;
    // The same moment keeps its place, whatever an answer takes on its way.
    if (!(Math.abs(offset - this.offset) < 1000)) this.offset = offset;
    const when = (at) => at.clock_ns / 1e6 + this.offset;
    // Of another run of the daemon the counters may be others.
    if (this.began !== began_ns) this.before = undefined;
    this.began = began_ns;
    for (const point of points) {
      const { before } = this;
      this.before = point;
      if (!before || point.clock_ns <= before.clock_ns) continue;
      const nanos = point.clock_ns - before.clock_ns;
      const rates = (unit, times) => Object.fromEntries(["passed", "dropped"].map((verdict) => {
        const each = rate(before[verdict][unit], point[verdict][unit], nanos);
        return [verdict, each === null ? null : each * times];
      }));
      this.points.push({
        from: when(before), at: when(point), packets: rates("packets", 1), bits: rates("bytes", 8),
      });
    }
    for (const mark of marks) this.marks.push({ at: when(mark), ...mark });
    this.forget(received);
  }
}
