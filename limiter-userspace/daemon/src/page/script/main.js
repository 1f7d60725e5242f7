// The loop: it asks, in turn, for what is shown, and shows it. A tab that nobody sees asks nothing.

// Time between two looks, and the longest pause while there is no answer, in milliseconds.
const EVERY = 1000;
const SLOWEST = 5000;

const TABS = ["sources", "rules", "events", "interfaces", "tune"];

// A source in the address of the page.
const SOURCE = /^[0-9a-f.:]+(\/\d+)?$/i;

class Page {
  constructor() {
    this.tab = "sources";
    this.all = new History();
    this.charts = ["passed", "dropped"].map((kind) => new Chart(byId("totals"), kind, kind));
    this.source = new SourceView(() => this.place());
    const open = (source, opener) => this.show(source, opener);
    this.sources = new Sources(open);
    this.rules = new Rules();
    this.events = new Events(open);
    this.interfaces = new Interfaces();
    this.tune = new Tune();
    this.stats = new Seldom(EVERY, () => ask("/v1/stats"));
    this.nearness = new Seldom(10_000, () => ask("/v1/nearness"));
    this.failures = 0;
    this.listen();
  }

  listen() {
    const tabs = TABS.map((name) => byId(`tab-${name}`));
    tabs.forEach((tab, index) => {
      tab.addEventListener("click", () => this.turn(TABS[index]));
      tab.addEventListener("keydown", (event) => {
        const last = TABS.length - 1;
        const to = { ArrowRight: index === last ? 0 : index + 1, Home: 0, End: last,
          ArrowLeft: index === 0 ? last : index - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        tabs[to].focus();
        this.turn(TABS[to]);
      });
    });
    this.events.listen(() => this.soon());
    byId("order").addEventListener("change", () => this.soon());
    byId("within").addEventListener("change", () => this.soon());
    document.addEventListener("visibilitychange", () => this.soon());
    window.addEventListener("hashchange", () => this.follow());
    this.turn(this.tab, location.hash);
    this.follow();
  }

  // Shows the tab and the source that the address names, as of a link or after a reload.
  follow() {
    const [tab, ...source] = location.hash.slice(1).split("/");
    if (TABS.includes(tab) && tab !== this.tab) this.turn(tab, location.hash);
    const named = source.join("/");
    if (SOURCE.test(named) && named !== this.source.source) this.show(named);
  }

  // Keeps in the address what is shown.
  place() {
    const { source } = this.source;
    history.replaceState(null, "", source ? `#${this.tab}/${source}` : `#${this.tab}`);
  }

  // Shows a tab.
  turn(name, address) {
    this.tab = name;
    if (!address) this.place();
    for (const each of TABS) {
      const chosen = each === name;
      byId(each).hidden = !chosen;
      byId(`tab-${each}`).setAttribute("aria-selected", chosen);
      byId(`tab-${each}`).tabIndex = chosen ? 0 : -1;
    }
    this.soon();
  }

  // Shows one source.
  show(source, opener) {
    this.source.open(source, opener);
    this.place();
    this.soon();
  }

  // Looks at once, or once the look under way is over.
  soon() {
    this.again = true;
    if (!this.looking) this.run();
  }

  async run() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    this.looking = true;
    this.again = false;
    const began = performance.now();
    try {
      await this.look();
      this.healed();
    } catch (error) {
      this.lost(error);
    }
    this.looking = false;
    // A daemon that takes long is asked less often, and one that is gone as well.
    const took = performance.now() - began;
    const pause = Math.max(EVERY, 4 * took) * (this.failures + 1);
    this.timer = setTimeout(() => this.run(), this.again ? 100 : Math.min(pause, SLOWEST));
  }

  async look() {
    const { tab } = this;
    const query = { by: byId("order").value, watch: this.source.source };
    const top = await this.top(query);
    const at = Date.now();
    const status = await ask("/v1/status");
    this.restarted(top, status);
    this.take(top, at);
    drawStates(top, status);
    this.head(top, status);
    if (tab === "sources") this.sources.draw(top);
    if (tab === "events") this.events.draw(await this.events.answer());
    if (tab === "rules" || tab === "interfaces") {
      const due = this.stats.answer;
      const stats = await this.stats.now();
      if (tab === "interfaces") this.interfaces.draw(status, stats);
      else if (stats !== due) {
        const near = await this.nearness.now();
        this.rules.draw(stats, near, this.stats.at, [top.began_ns, stats.generation].join());
      }
    }
    if (this.source.source) {
      await this.source.look();
      // It may have been closed meanwhile.
      const { source } = this.source;
      if (source) this.source.draw(top, this.sources.of(source));
    }
  }

  // The sources that stand out; all of them while the prefix that is typed is none.
  async top(query) {
    const prefix = byId("within").value.trim();
    const field = byId("within");
    try {
      const top = await ask("/v1/top", { ...query, prefix });
      field.removeAttribute("aria-invalid");
      return top;
    } catch (error) {
      if (!(error instanceof Refused && error.status === 400 && prefix)) throw error;
      field.setAttribute("aria-invalid", "true");
      const top = await ask("/v1/top", query);
      say(`Not a prefix: ${error.message}`);
      return top;
    }
  }

  // Notes whether another daemon answers than before.
  restarted(top, status) {
    const before = this.daemon;
    this.daemon = { pid: status.pid, version: status.version };
    if (!before || (before.pid === status.pid && !(top.uptime_seconds < this.uptime))) {
      this.uptime = top.uptime_seconds;
      return;
    }
    this.uptime = top.uptime_seconds;
    const when = clock(new Date());
    const other = before.version === status.version ? ""
      : " It is another version: reload this page.";
    this.news = `The daemon was started again, seen at ${when}.${other}`;
    for (const seldom of [this.stats, this.nearness]) seldom.again();
    say(this.news);
  }

  // Takes the sums of an answer.
  take(top, at) {
    const { before } = this;
    const time = goesOn(before, top) ? top.clock_ns - before.clock_ns : 0;
    const rates = ["passed", "dropped"].map((kind) => rate(before?.[kind], top[kind], time));
    this.all.push(at, ...rates);
    this.charts.forEach((chart, index) => chart.draw(this.all, rates[index]));
    tell(byId("elsewhere"), elsewhere(before, top));
    this.sources.note(top, at);
    this.before = top;
  }

  head(top, status) {
    tell(byId("version"), clean(status.version));
    const words = [`up ${span(top.uptime_seconds)}`, `generation ${top.generation}`,
      `${number(status.rules)} rules`, status.interfaces.map((at) => at.name).join(", ")];
    tell(byId("facts"), clean(words.join(" · ")) + (this.news ? ` · ${this.news}` : ""));
    document.title = `limiter${top.brake ? ": limits are off" : ""}`;
  }

  healed() {
    this.failures = 0;
    this.since = null;
    document.body.classList.remove("stale");
    this.badge("live", "good");
  }

  // Says that there is no answer, and since when; the last numbers stay, and are marked as old.
  lost(error) {
    this.failures += 1;
    this.since ??= new Date();
    document.body.classList.add("stale");
    const why = error instanceof Refused ? error.message : "no answer from the daemon";
    this.badge(`Since ${clock(this.since)}: ${why}. These numbers are old; asking again.`, "bad");
    const expected = [Refused, TypeError, DOMException].some((kind) => error instanceof kind);
    if (!expected) console.error(error);
  }

  badge(text, kind) {
    tell(byId("link"), text);
    byId("link").className = `badge ${kind}`;
  }
}

new Page();
