// Charts of what passed and what was dropped, on one scale: what was dropped from the bottom, and
// what passed above it, so that the height is all that came.

const SVG = "http://www.w3.org/2000/svg";

// Room around the plot, in pixels.
const ROOM = { left: 44, right: 10, top: 18, bottom: 20 };

// Changes in few words, and in full.
const MARKS = {
  started: ["start", "the daemon started"],
  rules: ["rules", "other rules in force"],
  trial: ["trial", "rules on trial"],
  confirmed: ["confirmed", "the trial was confirmed"],
  reverted: ["reverted", "the trial was reverted"],
  off: ["off", "limits off: every packet passes"],
  on: ["on", "limits on again"],
};

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A step of 1, 2 or 5 times a power of ten, of which `most` has at most `count`.
function stepOf(most, count) {
  const power = 10 ** Math.floor(Math.log10(most / count));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => most / step <= count + 1e-9);
}

// The time that charts show at most, in milliseconds.
let shownFor = KEPT_FOR;

// A chart. `of` is `packets` or `bits`; charts of one group have one cursor.
class Chart {
  constructor(parent, group, title, of) {
    this.group = group;
    this.title = make("span");
    this.set(title, of);
    this.values = ["passed", "dropped"].map((kind) => make("strong"));
    const keys = ["passed", "dropped"].map((kind, index) =>
      make("span", { class: `key ${kind}` }, `${kind} `, this.values[index]));
    this.svg = draw("svg", { role: "img", tabindex: 0 });
    this.tip = make("div", { class: "tip", role: "status", hidden: "" });
    this.plot = make("div", { class: "plot" }, this.svg, this.tip);
    parent.append(make("figure", {},
      make("figcaption", {}, this.title, ...keys), this.plot));
    group.push(this);
    const at = (event) => event.clientX - this.svg.getBoundingClientRect().left;
    for (const kind of ["pointermove", "pointerdown"]) {
      this.svg.addEventListener(kind, (event) => this.point(this.timeAt?.(at(event)) ?? null));
    }
    for (const kind of ["pointerleave", "blur"]) {
      this.svg.addEventListener(kind, () => this.point(null));
    }
    this.svg.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.again()).observe(this.plot);
  }

  // Sets the title, and what is shown: `packets` or `bits`.
  set(title, of) {
    this.of = of;
    this.write = of === "bits" ? bits : (value) => `${perSecond(value)}/s`;
    tell(this.title, title);
  }

  // Shows packets or bits from now on.
  turn(of) {
    this.set(of === "bits" ? "Bits a second" : "Packets a second", of);
    if (this.history) this.draw(this.history, this.atLeast);
  }

  // Shows rates; of the newest it also writes the numbers. `atLeast` has of both whether only a
  // part of the packets is counted.
  draw(history, atLeast = {}) {
    Object.assign(this, { history, atLeast });
    const now = history.now?.[this.of];
    ["passed", "dropped"].forEach((kind, index) =>
      tell(this.values[index], this.written(now, kind)));
    this.again();
    this.svg.setAttribute("aria-label", ["passed", "dropped"].map((kind) =>
      `${kind}: ${this.written(now, kind)}`).join(", ") + `, and the ${this.title.textContent} before`);
  }

  written(rates, kind) {
    const known = Number.isFinite(rates?.[kind]);
    return known ? part(this.write(rates[kind]), this.atLeast[kind]) : "not known";
  }

  // Draws what is there, as wide as there is room.
  again() {
    const [width, height] = [this.plot.clientWidth, this.plot.clientHeight];
    if (!this.history || width < 100) return;
    const end = this.history.now?.at ?? Date.now();
    const points = this.history.points.filter(({ at }) => at > end - shownFor);
    // Half a minute at least, so that what has just begun does not fill the chart.
    const begin = Math.min(points[0]?.from ?? end, end - 30_000);
    const shown = Math.min(end - begin, shownFor);
    const right = width - ROOM.right;
    const bottom = height - ROOM.bottom;
    const x = (time) => right - ((end - time) / shown) * (right - ROOM.left);
    const sum = ({ [this.of]: { passed, dropped } }) => (passed ?? 0) + (dropped ?? 0);
    // Single packets do not fill the chart.
    const most = Math.max(...points.map(sum), this.of === "bits" ? 10_000 : 10);
    const step = stepOf(most, 4);
    const top = Math.ceil(most / step - 1e-9) * step;
    const y = (value) => bottom - (value / top) * (bottom - ROOM.top);
    Object.assign(this, { points, end, shown, x, timeAt: (at) =>
      end - ((right - at) / (right - ROOM.left)) * shown });
    const parts = [];
    for (let value = 0; value <= top + step / 2; value += step) {
      const at = y(value);
      parts.push(draw("line", { class: "grid", x1: ROOM.left, x2: right, y1: at, y2: at }),
        draw("text", { class: "axis y", x: ROOM.left - 6, y: at + 4 }, short(value)));
    }
    parts.push(...this.times(x, bottom, right), ...this.bypassed(x, bottom, right));
    const area = (low, high) => points.map((point) => {
      const rates = point[this.of];
      const [from, to] = [low(rates), high(rates)].map((value) => y(value ?? 0).toFixed(1));
      return from === to ? ""
        : `M${x(point.from).toFixed(1)} ${from}V${to}H${x(point.at).toFixed(1)}V${from}Z`;
    }).join("");
    const known = ({ passed, dropped }) => [dropped ?? 0, (passed ?? 0) + (dropped ?? 0)];
    parts.push(
      draw("path", { class: "dropped", d: area(() => 0, (rates) => known(rates)[0]) }),
      draw("path", { class: "passed", d: area((rates) => known(rates)[0],
        (rates) => known(rates)[1]) }),
      draw("path", { class: "unknown", d: this.gaps(begin).map(([from, to]) =>
        `M${x(from).toFixed(1)} ${ROOM.top}H${x(to).toFixed(1)}V${bottom}H${x(from).toFixed(1)}Z`)
        .join("") }),
      ...this.marked(x, bottom));
    this.cursor = draw("line", { class: "cursor", y1: ROOM.top, y2: bottom, x1: -9, x2: -9 });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts, this.cursor);
    this.show(this.group.at);
  }

  // Times without a rate, which is not a rate of 0.
  gaps(begin) {
    const gaps = [];
    let known = begin;
    for (const point of this.points) {
      if (point.from - known > 2000) gaps.push([known, point.from]);
      const rates = point[this.of];
      if (rates.passed === null && rates.dropped === null) gaps.push([point.from, point.at]);
      known = point.at;
    }
    return gaps;
  }

  // The axis of times, by the clock of the browser.
  times(x, bottom, right) {
    const most = Math.max(1, Math.floor((right - ROOM.left) / 90));
    const steps = [5, 10, 15, 30, 60, 120, 300];
    const step = (steps.find((step) => this.shown / 1000 / step <= most) ?? 600) * 1000;
    const labels = [];
    for (let at = Math.ceil((this.end - this.shown) / step) * step; at <= this.end; at += step) {
      const text = step < 60_000 ? clock(new Date(at)) : clock(new Date(at)).slice(0, 5);
      // Whole labels only.
      if (x(at) < ROOM.left + 16 || x(at) > right - 16) continue;
      labels.push(draw("line", { class: "grid", x1: x(at), x2: x(at), y1: bottom, y2: bottom + 4 }),
        draw("text", { class: "axis x", x: x(at), y: bottom + 16 }, text));
    }
    return labels;
  }

  // The times in which every packet passed.
  bypassed(x, bottom, right) {
    const bands = [];
    let since = null;
    for (const { change, at } of this.history.marks) {
      if (change === "off") since = at;
      if (change === "on") {
        bands.push([since ?? this.end - this.shown, at]);
        since = null;
      }
    }
    if (since !== null) bands.push([since, this.end]);
    return bands.filter(([, to]) => x(to) > ROOM.left).map(([from, to]) => {
      const left = Math.max(x(from), ROOM.left);
      return draw("rect", { class: "bypass", x: left, y: ROOM.top,
        width: Math.max(Math.min(x(to), right) - left, 0), height: bottom - ROOM.top });
    });
  }

  // What changed: a line each, and its name where there is room.
  marked(x, bottom) {
    const marks = [];
    let free = 0;
    for (const { change, at } of this.history.marks) {
      const place = x(at);
      if (place < ROOM.left) continue;
      const [name] = MARKS[change] ?? [clean(change)];
      marks.push(draw("line", { class: `mark ${change}`, x1: place, x2: place, y1: ROOM.top - 4,
        y2: bottom }));
      const wide = name.length * 6.5;
      const last = this.plot.clientWidth - ROOM.right - wide;
      const from = Math.min(Math.max(place - wide / 2, ROOM.left - wide / 2), last);
      if (from < free) continue;
      free = from + wide + 6;
      marks.push(draw("text", { class: `axis mark ${change}`, x: from, y: ROOM.top - 7 }, name));
    }
    return marks;
  }

  // Moves the cursor of all charts of the group to a time, or takes it away.
  point(time) {
    this.group.at = time;
    for (const chart of this.group) chart.show(time);
  }

  // Shows the values at a time.
  show(time) {
    const point = time === null || time === undefined ? undefined
      : this.points?.find(({ from, at }) => time >= from && time <= at);
    this.tip.hidden = !point;
    if (!point) {
      this.cursor?.setAttribute("x1", -9);
      this.cursor?.setAttribute("x2", -9);
      return;
    }
    const place = this.x(point.at);
    this.cursor.setAttribute("x1", place);
    this.cursor.setAttribute("x2", place);
    const rates = point[this.of];
    const all = rates.passed + rates.dropped;
    const share = all > 0 ? ` (${percent(rates.dropped / all)})` : "";
    const near = (mark) => mark.at > point.from && mark.at <= point.at;
    const lines = [`${clock(new Date(point.at))}, ${ago(point.at)}`,
      `passed ${this.written(rates, "passed")}`,
      `dropped ${this.written(rates, "dropped")}${share}`,
      ...this.history.marks.filter(near).map(({ change }) =>
        MARKS[change]?.[1] ?? clean(change))];
    this.tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
    // Beside the cursor, on the side that has room.
    const left = place > this.plot.clientWidth / 2;
    this.tip.style.right = left ? `${this.plot.clientWidth - place + 8}px` : "auto";
    this.tip.style.left = left ? "auto" : `${place + 8}px`;
  }

  press(event) {
    const points = this.points ?? [];
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape" && this.group.at) {
      event.stopPropagation();
      this.point(null);
    }
    if (!move || points.length === 0) return;
    event.preventDefault();
    const { at } = this.group;
    const here = points.findIndex((point) => at >= point.from && at <= point.at);
    const to = here < 0 ? points.length - 1 : here + move;
    const next = points[Math.max(0, Math.min(points.length - 1, to))];
    this.point((next.from + next.at) / 2);
  }
}
