// Commands to copy. They are for a POSIX shell, and nothing here runs them.

// Words that mean themselves in every shell. A tilde, a brace, a glob or a history mark is quoted.
const BARE = /^[A-Za-z0-9_.,:/@%+=-]+$/;

// A word as a shell takes it literally; null where it has characters that a terminal may act upon
// when they are pasted.
function quoted(word) {
  if (word.search(NOT_PLAIN) >= 0) return null;
  return BARE.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

// An option with its value in one word, so that a value that begins with a dash is none by itself.
function option(name, value) {
  const word = quoted(value);
  return word === null ? null : `${name}=${word}`;
}

// A command line; null if one of its words cannot be written.
function command(...words) {
  return words.includes(null) ? null : ["limiter", ...words].join(" ");
}

// An address or prefix as a word, which cannot be anything else.
const place = (text) => (/^[0-9a-fA-F.:]+(\/[0-9]+)?$/.test(text) ? text : null);

// The address of a source: of an IPv6 /64 its first.
const address = (source) => place(source.split("/")[0]);

// Commands about a source, each with what it does.
function commandsOf(source, state) {
  const [where, one] = [place(source), address(source)];
  const undo = [];
  if (state.listed) undo.push(["Take it off its list", command("unlist", where)]);
  if (state.banned_seconds) undo.push(["End its ban", command("unban", one)]);
  return [
    ["Show it", command("show", where)],
    ["Say what becomes of a packet", command("explain", "--from", one)],
    ["Record its packets", command("capture", "--source", where, "--count 100 -w source.pcapng")],
    ["Deny it for an hour", command("deny", where, "--for 1h")],
    ["Ban it for ten minutes", command("ban", one, "--for 10m")],
    ["Let all of it pass for an hour", command("allow", where, "--for 1h")],
    ["Give it a limit of its own", command("set", where, "100/s")],
    ...undo,
  ];
}

