// Questions to whoever served the page.

// Longest time for an answer, in milliseconds.
const PATIENCE = 10_000;

// An answer that says no, with its reason.
class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// The answer to a question, as JSON. Fails with Refused, or without an answer.
async function ask(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== "");
  const words = new URLSearchParams(given).toString();
  const response = await fetch(words ? `${path}?${words}` : path, {
    cache: "no-store", credentials: "omit", redirect: "error",
    signal: AbortSignal.timeout(PATIENCE),
  });
  if (response.ok) return response.json();
  const said = await response.json().catch(() => ({}));
  throw new Refused(response.status, clean(said.error ?? `status ${response.status}`));
}

// A question that is asked only as often as its answer is cheap: never within `least` milliseconds
// of the answer before, and for a tenth of the time at most.
class Seldom {
  constructor(least, question) {
    Object.assign(this, { least, question, due: 0, at: 0, answer: undefined });
  }

  async now() {
    if (performance.now() < this.due) return this.answer;
    this.asking ??= this.ask().finally(() => {
      this.asking = null;
    });
    return this.asking;
  }

  async ask() {
    const began = performance.now();
    this.answer = await this.question();
    this.at = performance.now();
    this.due = this.at + Math.max(this.least, 9 * (this.at - began));
    return this.answer;
  }

  // Has it asked again at once.
  again() {
    this.due = 0;
  }
}

