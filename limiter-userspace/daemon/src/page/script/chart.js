// Packets a second over the last minutes, as this page has seen them.

// The time that a chart shows, in seconds.
const SHOWN = 300;

// Rates of a source, or of all, while the page looked.
class History {
  constructor() {
    this.points = [];
    this.seen = 0;
  }

  // Notes rates at a time of the browser's clock, in milliseconds; null where there is none.
  push(at, passed, dropped) {
    const from = this.seen;
    this.seen = at;
    // After a pause nothing is known of the time before.
    if (at - from < 15_000) this.points.push({ from, at, passed, dropped });
    const oldest = at - SHOWN * 1000;
    while (this.points.length > 0 && this.points[0].at < oldest) this.points.shift();
  }
}

// A chart of one of the rates.
class Chart {
  constructor(parent, label, kind) {
    Object.assign(this, { label, kind });
    this.path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("viewBox", `0 0 ${SHOWN} 100`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.path.setAttribute("class", kind);
    this.svg.append(this.path);
    this.now = make("strong");
    this.most = make("span", { class: "quiet" });
    parent.append(make("figure", {},
      make("figcaption", {}, make("span", {}, `${label} `, this.now), this.most), this.svg));
  }

  draw(history, rateNow) {
    const last = history.points.at(-1)?.at ?? 0;
    const rates = history.points.map((point) => point[this.kind] ?? 0);
    const most = Math.max(...rates, 0);
    const x = (time) => (SHOWN - (last - time) / 1000).toFixed(1);
    const bar = (point, index) => {
      const top = (100 - (95 * rates[index]) / most).toFixed(1);
      return `M${x(point.from)} 100V${top}H${x(point.at)}V100Z`;
    };
    this.path.setAttribute("d", most > 0 ? history.points.map(bar).join("") : "");
    tell(this.now, `${perSecond(rateNow)}/s`);
    const words = `highest seen: ${perSecond(most)}/s`;
    tell(this.most, history.points.length > 0 ? words : "");
    this.svg.setAttribute("aria-label", `${this.label}: ${perSecond(rateNow)} a second, ${words}`);
  }
}

