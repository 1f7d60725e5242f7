// The loop: it asks, in turn, for what is shown, and shows it. A tab that nobody sees asks nothing.

// Time between two looks, and the longest pause while there is no answer, in milliseconds.
const EVERY = 1000;
const SLOWEST = 5000;

const TABS = ["sources", "events", "rules", "interfaces", "requests", "tune"];

class Page {
  constructor() {
    this.tab = "sources";
    this.all = new Totals();
    const group = [];
    this.charts = [new Chart(byId("totals"), group, "Packets a second", "packets")];
    this.source = new SourceView((step) => {
      document.body.classList.remove("one");
      this.place(step);
    });
    const open = (source, opener) => this.show(source, opener);
    this.sources = new Sources(open);
    this.rules = new Rules();
    this.events = new Events(open);
    this.interfaces = new Interfaces();
    this.requests = new Requests();
    this.tune = new Tune();
    this.stats = new Seldom(EVERY, () => ask("/v1/stats"));
    this.utilization = new Seldom(10_000, () => ask("/v1/utilization"));
    this.failures = 0;
    this.listen();
  }

  listen() {
    const tabs = TABS.map((name) => byId(`tab-${name}`));
    tabs.forEach((tab, index) => {
      tab.addEventListener("click", () => this.turn(TABS[index]));
      tab.addEventListener("keydown", (event) => {
        const shown = tabs.filter((tab) => !tab.hidden);
        const [at, last] = [shown.indexOf(tab), shown.length - 1];
        const to = { ArrowRight: at === last ? 0 : at + 1, Home: 0, End: last,
          ArrowLeft: at === 0 ? last : at - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        shown[to].focus();
        this.turn(TABS[tabs.indexOf(shown[to])]);
      });
    });
    this.events.listen(() => this.soon());
    byId("order").addEventListener("change", () => this.soon());
    byId("search").addEventListener("input", () => this.searching());
    byId("search").addEventListener("keydown", (event) => {
      const sought = searched();
      if (event.key === "Enter" && PREFIX.test(sought)) this.show(sought, byId("search"));
    });
    byId("unit").addEventListener("change", (event) => {
      for (const chart of this.charts) chart.turn(event.target.value);
    });
    byId("span").addEventListener("change", (event) => {
      shownFor = Number(event.target.value) * 60_000;
      for (const chart of [...this.charts, this.source.chart]) chart?.again();
    });
    document.addEventListener("visibilitychange", () => this.soon());
    window.addEventListener("hashchange", () => this.follow());
    this.turn(this.tab, "as it is");
    this.follow();
    this.place();
  }

  // Shows the tab, the source and the search that the address names, as of a link or after a
  // reload.
  follow() {
    const [path, query] = location.hash.slice(1).split("?");
    const [tab, ...source] = path.split("/");
    byId("search").value = new URLSearchParams(query).get("q") ?? "";
    if (TABS.includes(tab) && tab !== this.tab) this.turn(tab, location.hash);
    const named = source.join("/");
    if (SOURCE.test(named) && named !== this.source.source) this.show(named);
    else if (!named && this.source.source) this.source.close(false);
    else this.soon();
  }

  // Keeps in the address what is shown; `step` makes it a place to go back to.
  place(step) {
    const { source } = this.source;
    const sought = searched();
    const to = (source ? `#${this.tab}/${source}` : `#${this.tab}`)
      + (sought ? `?${new URLSearchParams({ q: sought })}` : "");
    if (to === location.hash) return;
    if (step) history.pushState(null, "", to);
    else history.replaceState(null, "", to);
  }

  // Shows what is typed once there is a pause.
  searching() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      this.place();
      this.events.again();
      this.soon();
    }, 200);
  }

  // Shows a tab.
  turn(name, address) {
    this.tab = name;
    if (!address) this.place(true);
    // It is for a file, and there by its link alone.
    byId("tab-tune").hidden = name !== "tune";
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
    document.body.classList.add("one");
    this.place(opener);
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
    const limit = searched() ? SEARCHED_ROWS : null;
    const query = { by: byId("order").value, watch: this.source.source, limit };
    const top = await this.top(query);
    const at = Date.now();
    const status = await ask("/v1/status");
    await this.all.look();
    this.restarted(top, status);
    this.take(top, at);
    drawStates(top, status);
    this.head(top, status);
    if (tab === "sources") this.sources.draw(top);
    // A daemon that was not told of requests has nothing to show about them.
    const reporting = status.requests?.processes || status.requests?.silent;
    byId("tab-requests").hidden = tab !== "requests" && !reporting;
    if (tab === "requests") this.requests.draw(await ask("/v1/requests"));
    if (tab === "events") this.events.draw(await this.events.answer());
    if (tab === "rules" || tab === "interfaces") {
      const due = this.stats.answer;
      const stats = await this.stats.now();
      if (tab === "interfaces") this.interfaces.draw(status, stats);
      else if (stats !== due) {
        this.rules.draw(stats, this.stats.at, [top.began_ns, stats.generation].join());
        // All buckets are read for it: the rest is not to wait.
        this.utilization.now().then((near) => this.rules.take_near(near), () => {});
      }
    }
    if (this.source.source) {
      await this.source.look();
      // It may have been closed meanwhile.
      const { source } = this.source;
      if (source) this.source.draw(top, this.sources.of(source));
    }
  }

  // The sources that stand out, in the prefix that is searched if that is one.
  async top(query) {
    const prefix = prefixSearched();
    try {
      return await ask("/v1/top", { ...query, prefix });
    } catch (error) {
      if (!(error instanceof Refused && error.status === 400 && prefix)) throw error;
      say(`Not a prefix: ${error.message}`);
      return ask("/v1/top", query);
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
    for (const seldom of [this.stats, this.utilization]) seldom.again();
    say(this.news);
  }

  // Takes the sums of an answer.
  take(top, at) {
    for (const chart of this.charts) chart.draw(this.all);
    this.sources.note(top, at);
  }

  head(top, status) {
    tell(byId("version"), clean(status.version));
    tell(byId("limits"), top.bypass ? "limits are off" : "limits on");
    byId("limits").className = `badge ${top.bypass ? "bad" : "good"}`;
    const words = [`up ${span(top.uptime_seconds)}`, `generation ${top.generation}`,
      counted(status.rules, "rule"), status.interfaces.map((at) => at.name).join(", ")];
    tell(byId("facts"), clean(words.join(" · ")) + (this.news ? ` · ${this.news}` : ""));
    tell(byId("headline"), clean(top.headline ?? "Measuring: rates take two looks."));
    byId("headline").classList.toggle("bad", this.all.now?.packets?.dropped > 0);
    title(top.bypass ? "limits are off" : "");
  }

  healed() {
    this.failures = 0;
    this.answered = new Date();
    document.body.classList.remove("stale");
    this.badge("live", "good");
  }

  // Says that there is no answer, when the last one came, and what to type; the last numbers stay,
  // and are marked as old.
  lost(error) {
    this.failures += 1;
    document.body.classList.add("stale");
    const why = error instanceof Refused ? error.message : "no answer from the daemon";
    const since = this.answered ? clock(this.answered) : "the page was opened";
    this.badge(`no answer since ${since}`, "bad");
    tell(byId("headline"), `Since ${since}: ${why}. All numbers below are from before; the page`
      + " goes on asking. Limits outlast the daemon, unless their rule says otherwise. If it ended,"
      + " start it again: systemctl restart limiter, or limiter run. See what is wrong: limiter"
      + " doctor.");
    byId("headline").classList.add("bad");
    title("no answer");
    const expected = [Refused, TypeError, DOMException].some((kind) => error instanceof kind);
    if (!expected) console.error(error);
  }

  badge(text, kind) {
    tell(byId("link"), text);
    byId("link").className = `badge ${kind}`;
  }
}

// The title of the page in a tab of the browser.
function title(state) {
  document.title = state ? `limiter: ${state}` : "limiter";
}

new Page();
