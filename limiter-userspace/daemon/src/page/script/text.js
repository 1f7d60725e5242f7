// Text: numbers, times, and names that came from outside.

// Characters that are more than what is seen of them: as `is_plain` of `limiter-text` has it.
const NOT_PLAIN =
  /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Default_Ignorable_Code_Point}]/gu;

// Text in which everything is plain. It goes into text nodes and attributes, never into markup.
const clean = (text) => String(text).replace(NOT_PLAIN, "\ufffd");

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

// A count; a dash where there is none.
const number = (count) => (Number.isFinite(count) ? GROUPED.format(count) : "-");

// A count with what is counted.
const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

// Units a second, in few digits.
function perSecond(rate) {
  if (!Number.isFinite(rate)) return "-";
  return rate >= 10 || rate === 0 ? number(Math.round(rate)) : rate.toFixed(1);
}

// A value on an axis: 1500 as 1.5k.
function short(value) {
  const units = ["", "k", "M", "G", "T"];
  const power = value > 0 ? Math.max(0, Math.floor(Math.log10(value * 1.0001) / 3)) : 0;
  const unit = Math.min(power, units.length - 1);
  return `${Number((value / 1000 ** unit).toPrecision(3))}${units[unit]}`;
}

// A number with a unit of which there are thousands, in three digits or so.
function scaled(value, units) {
  let unit = 0;
  let rest = value;
  while (rest >= 999.5 && unit < units.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return `${unit > 0 && rest < 99.95 ? rest.toFixed(1) : rest.toFixed(0)} ${units[unit]}`;
}

// Bits a second: 13.1 Mbit/s.
const bits = (rate) => (Number.isFinite(rate)
  ? scaled(rate, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]) : "-");

// Bytes: 13.1 MB.
const bytes = (count) => (Number.isFinite(count)
  ? scaled(count, ["B", "kB", "MB", "GB", "TB", "PB"]) : "-");

// A number of which there may be more, with a sign for that; at least 0 is no number.
function part(text, atLeast) {
  if (!atLeast) return text;
  return text === "0" || text === "-" ? "-" : `\u2265${text}`;
}

// A share from 0 to 1 in per cent, with one digit where it is small.
function percent(share) {
  if (!Number.isFinite(share)) return "-";
  const percents = share * 100;
  if (percents > 0 && percents < 0.1) return "<0.1 %";
  return `${percents > 0 && percents < 10 ? percents.toFixed(1) : percents.toFixed(0)} %`;
}

// A time in seconds, in its two largest units.
function span(seconds) {
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (hours < 1) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return days < 1 ? `${hours} h ${minutes % 60} min` : `${days} d ${hours % 24} h`;
}

// The time of day, by the clock of the browser.
const clock = (date) => date.toLocaleTimeString("en-GB");

// A moment by the clock of the browser, with UTC beside where that is another one.
function moment(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return clean(text);
  const utc = date.toISOString().replace("T", " ").replace(/\.\d+Z$/, "Z");
  if (date.getTimezoneOffset() === 0) return utc;
  const day = new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString();
  const same = day.slice(0, 10) === utc.slice(0, 10);
  return `${day.slice(0, 10)} ${clock(date)} (${same ? utc.slice(11) : utc})`;
}

// How long ago a moment of the browser's clock is, in milliseconds, in one unit.
function ago(time) {
  const seconds = Math.max(0, Math.round((Date.now() - time) / 1000));
  const units = [[86_400, "d"], [3600, "h"], [60, "min"]];
  const [size, unit] = units.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

// A moment in short, by the clock of the browser: the day only where it is another one.
function local(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return clean(text);
  const day = date.toDateString() === new Date().toDateString() ? ""
    : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} `;
  return day + clock(date);
}

// A rule by the name that its author gave it, and whom it is for.
function titled(rule, name) {
  if (!rule) return "-";
  return clean(name ? `${name} (${rule})` : rule);
}

// Packets a second between two counts, `nanos` apart; none if a counter began anew.
function rate(before, now, nanos) {
  if (!(nanos > 0) || !(now >= before)) return null;
  return ((now - before) * 1e9) / nanos;
}

