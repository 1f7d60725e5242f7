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
    this.gaps = document.createElementNS("http://www.w3.org/2000/svg", "path");
    this.gaps.setAttribute("class", "unknown");
    this.svg.append(this.gaps, this.path);
    this.now = make("strong");
    this.most = make("span", { class: "quiet" });
    parent.append(make("figure", {},
      make("figcaption", {}, make("span", {}, `${label} `, this.now), this.most), this.svg));
  }

  // `atLeast` if only a part of the packets is counted.
  draw(history, rateNow, atLeast = false) {
    const last = history.points.at(-1)?.at ?? 0;
    const points = history.points.map((point) => ({ ...point, rate: point[this.kind] ?? null }));
    const known = points.filter((point) => point.rate !== null);
    const most = Math.max(...known.map((point) => point.rate), 0);
    // One scale for what passed and what was dropped, so that they compare.
    const both = history.points.flatMap(({ passed, dropped }) => [passed ?? 0, dropped ?? 0]);
    const scale = Math.max(...both, 0);
    const x = (time) => (SHOWN - (last - time) / 1000).toFixed(1);
    const bar = (point, top) => `M${x(point.from)} 100V${top}H${x(point.at)}V100Z`;
    const height = (point) => (100 - (95 * point.rate) / scale).toFixed(1);
    const bars = scale > 0 ? known.map((point) => bar(point, height(point))) : [];
    this.path.setAttribute("d", bars.join(""));
    // Where the rate is not known, which is not 0.
    const gaps = points.filter((point) => point.rate === null);
    this.gaps.setAttribute("d", gaps.map((point) => bar(point, "0")).join(""));
    const now = Number.isFinite(rateNow) ? `${part(perSecond(rateNow), atLeast)}/s` : "not known";
    tell(this.now, now);
    const words = known.length > 0 ? `highest seen: ${part(perSecond(most), atLeast)}/s` : "";
    tell(this.most, words);
    const said = [`${this.label}: ${now}`, words].filter(Boolean).join(", ");
    this.svg.setAttribute("aria-label", said);
  }
}

