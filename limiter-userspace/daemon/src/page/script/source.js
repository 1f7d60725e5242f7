// One source: its limit and its bucket now, its last minutes, and the commands about it.

class SourceView {
  constructor(closed) {
    this.source = null;
    this.closed = closed;
    this.opener = null;
    byId("source-close").addEventListener("click", () => this.close());
    byId("source").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  open(source, opener) {
    this.source = source;
    this.opener = opener;
    this.drawn = null;
    // All keys of tables are read for it.
    this.views = new Seldom(5000, () => ask(`/v1/sources/${source}`));
    const body = byId("source-body");
    const charts = make("div");
    this.now = make("p", { class: "headline" });
    // What it had counted when it was seen last, and when that was gone.
    this.counts = null;
    this.left = make("p", { class: "near" });
    this.facts = make("div");
    this.commands = make("ul", { class: "copies" });
    this.rules = make("div");
    body.replaceChildren(this.now, this.left, charts,
      make("p", { class: "quiet" }, "The rates are what this page saw: while the source was in the"
        + " table, or in this view. Bytes are not counted by source."),
      this.facts, this.rules, make("h3", {}, "Commands to copy"), this.commands);
    this.chart = new Chart(charts, [], "Packets a second", "packets");
    this.byRule = new Table(this.rules, "Packets by rule", [
      { head: "By", text: (row) => titled(row.rule ?? dropper(row), row.rule_name) },
      { head: "Reason", text: (row) => clean(row.reason) },
      { head: "Dropped/s", number: true, text: (row) => perSecond(row.dropped_per_second) },
      { head: "Dropped", number: true, text: (row) => number(row.dropped) },
      { head: "Passed", number: true, text: (row) => number(row.passed ?? NaN) },
      { head: "Buckets", number: true, text: (row) => number(row.keys ?? NaN) },
      { head: "Counted", text: countOf },
    ], { kind: (row) => (row.dropped > 0 ? "dropping" : "") });
    tell(byId("source-title"), clean(source));
    byId("source").hidden = false;
    byId("source").focus();
  }

  // `step` if that is a place of its own to go back from.
  close(step = true) {
    byId("source").hidden = true;
    this.source = null;
    this.closed(step);
    if (this.opener?.isConnected) this.opener.focus();
    else byId("body").focus();
  }

  // Asks about it; another may be open when the answer is there.
  async look() {
    const { source, views } = this;
    const view = await views.now();
    if (source === this.source) this.view = view;
  }

  // Keeps its last counts where it vanished from the tables.
  keep(rows) {
    const sum = (of) => rows.reduce((sum, row) => sum + of(row), 0);
    const now = { passed: sum((row) => row.passed), dropped: sum((row) => row.dropped) };
    const before = this.counts;
    this.counts = now;
    if (!before || now.passed + now.dropped >= before.passed + before.dropped) return;
    tell(this.left, `Its counters left the tables at ${clock(new Date())}: until then`
      + ` ${number(before.passed)} packets had passed and ${number(before.dropped)} were dropped.`);
  }

  draw(top, history) {
    const rows = top.watched.filter((row) => row.source === this.source);
    this.chart.draw(history, { passed: rows.some((row) => row.passed_at_least),
      dropped: rows.some((row) => row.dropped_at_least) });
    const losing = rows.filter((row) => row.dropped_per_second > 0);
    const none = rows.some((row) => row.dropped_at_least) ? "No drop of it is seen now."
      : "Nothing of it is dropped now.";
    tell(this.now, losing.map(lossOf).join("; ") || none);
    this.now.classList.toggle("bad", losing.length > 0);
    this.keep(rows);
    const { view } = this;
    if (view?.source !== this.source || view === this.drawn) return;
    this.drawn = view;
    this.facts.replaceChildren(facts(factsOf(view)));
    const key = (by) => JSON.stringify([by.rule, by.rule_name, by.reason, by.of, by.exact]);
    const counted = (by) => by.dropped > 0 || by.passed > 0;
    this.byRule.show((view.by_rule ?? []).filter(counted), key);
    const commands = JSON.stringify(commandsOf(this.source, view));
    if (this.commands.dataset.of === commands) return;
    this.commands.dataset.of = commands;
    this.commands.replaceChildren(...commandsOf(this.source, view).map(([what, text]) =>
      make("li", {}, copyButton(text), make("code", {}, text ?? "-"),
        make("span", { class: "quiet" }, what))));
  }
}

// What drops packets of a source now, in words.
function lossOf(row) {
  const way = { out: " of what goes out", both: " of what comes in and goes out" }[row.direction];
  const each = row.by.filter((by) => by.dropped_per_second > 0).map((by) =>
    `${part(perSecond(by.dropped_per_second), !by.exact)}/s by ${dropper(by)}`
    + ` (${clean(by.reason)})`);
  return `Dropped${way ?? ""}: ${each.join(", ")}`;
}

// What a count by rule is of.
function countOf(by) {
  if (!by.exact) return "in a sample: there may be more";
  if (by.of) return `all sources in ${clean(by.of)} together`;
  return by.with_before ? "may include rules before" : "all packets";
}

// A count for each direction, unless only packets that come in are counted.
function byWay(view, count) {
  if ((view.rows ?? []).every((row) => row.direction === "in")) return count(view);
  const way = { both: "in+out" };
  return view.rows.map((row) => `${count(row)} ${way[row.direction] ?? row.direction}`).join(", ");
}

// What is known of a source, as `limiter show` has it.
function factsOf(view) {
  const others = view.other_rules_in_all;
  const rule = view.rule ? titled(view.rule, view.rule_name)
    : view.listed || view.martian || view.banned_seconds || others > 0
      ? "none on sources" : "none: not limited";
  const more = others - view.other_rules.length;
  const several = view.left.length > 1;
  const left = view.left.map((at) => `${number(at.remaining)}`
    + `${at.size === null ? "" : ` of ${number(at.size)}`} ${at.count} at once`
    + (several ? ` (${clean(at.limit)}${at.conforms ? "" : ": drops now"})` : ""));
  return [
    ["rule", rule],
    ["limits", view.limits.length > 0 ? clean(view.limits.map((at) => at.text).join("; "))
      : view.limit && clean(view.limit)],
    ["over the limit", view.action && clean(view.action)],
    ["budget", view.budget && clean(view.budget)],
    ["shadow mode", view.shadow ? "the rule only counts what it would drop" : null],
    ["list", view.listed && clean([view.listed + (view.listed_by ? ` by ${view.listed_by}` : ""),
      view.listed_reason].filter(Boolean).join(": "))],
    ["banned", view.banned_seconds && `for ${span(view.banned_seconds)} more`
      + (view.banned_by ? `, by ${clean(view.banned_by)}` : "")],
    ["martian", view.martian ? "no host can have this address: dropped" : null],
    ["left of its limits", left.length > 0 ? left.join("; ") : null],
    ["passed", byWay(view, (of) => passedOf(of, number(of.passed)))],
    ["dropped", byWay(view, (of) => droppedOf(of, number(of.dropped)))],
    ["bucket", view.tracked ? null : "none now: nothing of its limit is used"],
    ["may drop packets, too", others > 0
      ? clean(view.other_rules.join("; ")) + (more > 0 ? ` and ${number(more)} more` : "") : null],
  ];
}

