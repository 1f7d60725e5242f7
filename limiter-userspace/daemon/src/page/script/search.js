// The one field that narrows what is shown: words of a row, an address or a prefix.

// A source in the address of the page, or in the field.
const SOURCE = /^[0-9a-f.:]+(\/\d+)?$/i;

// An address or a prefix that is written to its end.
const PREFIX = /^((\d+\.){3}\d+|[0-9a-f]*:[0-9a-f:]*(:[0-9a-f]*)(\d+\.\d+\.\d+\.\d+)?)(\/\d+)?$/i;

const searched = () => byId("search").value.trim();

// The prefix that is searched, which the daemon knows best; none where it is words.
const prefixSearched = () => (PREFIX.test(searched()) ? searched() : "");

// True of texts that have all words that are searched.
function matches(texts) {
  const words = searched().toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const text = texts.filter(Boolean).join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

// Words beside a table that shows a part.
const partOf = (shown, all, one, many) => (shown === all ? `${counted(all, one, many)}.`
  : `${number(shown)} of ${counted(all, one, many)} match “${clean(searched())}”.`);
