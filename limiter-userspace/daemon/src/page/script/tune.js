// The answer of `limiter tune --json` from a file of the user's: rate by burst, who would be hit.

// The largest file that is read, in bytes: such answers have some 20 kB.
const LARGEST = 4 << 20;

class Tune {
  constructor() {
    byId("tune-file").addEventListener("change", (event) => this.open(event.target.files[0]));
  }

  async open(file) {
    const body = byId("tune-body");
    if (!file) return body.replaceChildren();
    try {
      if (file.size > LARGEST) throw new Error("it is too large for an answer of limiter tune");
      const report = JSON.parse(await file.text());
      if (!Array.isArray(report?.rates) || !("proposal" in report)) {
        throw new Error("it is not an answer of limiter tune --json");
      }
      body.replaceChildren(...this.shown(report));
    } catch (error) {
      const why = clean(error.message);
      const text = `${clean(file.name)}: ${why}`;
      body.replaceChildren(make("p", { class: "bad", role: "alert" }, text));
    }
  }

  // The parts of the view. What is missing in the file is an error.
  shown(report) {
    const { proposal } = report;
    const sample = report.one_of > 1 ? `, one of ${number(report.one_of)} by a hash` : "";
    const parts = [make("p", {}, `${number(report.packets)} packets of ${number(report.sources)}`
      + ` sources${sample} in ${span(report.seconds)}.`)];
    if (proposal) {
      const most = clean(proposal.hit.join(", "));
      parts.push(make("p", {}, make("strong", {}, `To try: ${clean(proposal.rate)}, `
        + `${number(proposal.burst)} at once.`), ` It hits ${number(proposal.sources_hit)} sources,`
        + ` ${percent(proposal.share_hit)}; of others like them at most`
        + ` ${percent(proposal.share_at_most)}, with a confidence of 95 %.`
        + (most ? ` Those that sent most: ${most}.` : "")));
    }
    for (const kind of ["sources", "packets"]) parts.push(this.map(report, kind));
    const notes = (report.notes ?? []).map((note) => make("li", {}, clean(note)));
    if (notes.length > 0) parts.push(make("ul", {}, ...notes));
    if (report.rule_file) {
      parts.push(make("h3", {}, "The rule file, in shadow mode"), make("pre", { tabindex: 0 },
        report.rule_file.split("\n").map(clean).join("\n")));
    }
    return parts;
  }

  // The heat map: a share for each rate and burst.
  map(report, kind) {
    const bursts = [...new Set(report.rates.flatMap((at) => at.hits.map((hit) => hit.burst)))];
    bursts.sort((a, b) => a - b);
    const what = kind === "sources" ? "Share of the sources that lose a packet"
      : "Share of the packets that these sources sent";
    const head = make("tr", {}, make("th", { scope: "col" }, "Rate"),
      ...bursts.map((burst) => make("th", { scope: "col" }, number(burst))));
    const rows = report.rates.map((at) => {
      const cells = bursts.map((burst) => {
        const share = at.hits.find((hit) => hit.burst === burst)?.[kind];
        const cell = make("span", {}, percent(share));
        // The square root: small shares are what one looks for.
        if (share > 0) cell.style.background = `rgba(var(--heat), ${Math.sqrt(share) * 0.6})`;
        return make("td", {}, cell);
      });
      const proposed = at.rate === report.proposal?.rate ? "proposed" : null;
      const name = clean(at.rate) + (proposed ? " (to try)" : "");
      return make("tr", { class: proposed }, make("th", { scope: "row" }, name), ...cells);
    });
    const table = make("table", { class: "heat" }, make("caption", { class: "hidden" }, what),
      make("thead", {}, head), make("tbody", {}, ...rows));
    const title = `${what}, by rate and burst (${clean(report.count)} at once)`;
    const scroll = { class: "scroll", tabindex: 0, role: "region", "aria-label": title };
    return make("details", { open: kind === "sources" ? "" : null },
      make("summary", {}, title), make("div", scroll, table));
  }
}

