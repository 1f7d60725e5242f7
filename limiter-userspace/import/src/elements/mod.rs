//! Lists of addresses, from `ipset save` and fail2ban. They become a file for `limiter deny --file`
//! or `allow`.

pub(crate) mod crowdsec;
pub(crate) mod fail2ban;
pub(crate) mod ipset;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use limiter_rules::Selector;
use limiter_text::plain::clean;

use super::imported::{Entry, Imported, Outcome};
use super::lists::listed;

/// Remark in two lines about fail2ban bans without their times.
const TIMELESS: [&str; 2] = [
    "There are no times: each of these is denied until it is taken off, whatever the ban time is;",
    "`fail2ban-client get JAIL banip --with-time` prints the times.",
];

/// A list from another program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elements {
    pub(super) name: String,
    /// Sources with the seconds for which each is listed.
    pub(super) sources: BTreeMap<Selector, Option<u64>>,
    /// True if an IPv6 address was widened to its /64.
    pub(super) prefix64: bool,
    /// True if the times are those of whole bans instead of what remains.
    pub(super) from_now: bool,
    /// True if some bans end at a time that the text does not contain.
    pub(super) timeless: bool,
    /// Entries that were not translated: place, text and reason.
    pub(super) not: Vec<(String, String, String)>,
}

impl Elements {
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds a source. If it is listed twice, the longer time counts.
    pub(super) fn add(&mut self, net: ipnet::IpNet, seconds: Option<u64>) {
        self.prefix64 |= matches!(net, ipnet::IpNet::V6(v6) if v6.prefix_len() > 64);
        let longer = |held: Option<u64>| held.zip(seconds).map(|(held, new)| held.max(new));
        self.sources.entry(listed(net)).and_modify(|held| *held = longer(*held)).or_insert(seconds);
    }

    /// Records an entry that cannot be translated.
    pub(super) fn refuse(&mut self, place: String, text: &str, reason: impl Into<String>) {
        self.not.push((place, text.to_owned(), reason.into()));
    }
}

/// Writes the file for several lists.
pub(super) fn import(from: &str, lists: &[Elements]) -> Imported {
    let mut text = format!(
        "# Made by `limiter import` from {from}. Nothing was applied. `limiter deny --file \
         FILE` denies \
         them.\n# P: a list here is for all ports and protocols, and for open connections.\n"
    );
    if lists.iter().any(|list| list.prefix64) {
        text.push_str("# D: an IPv6 address there is a /64 here.\n");
    }
    if lists.iter().any(|list| list.from_now) {
        text.push_str("# A time is that of the whole ban, as fail2ban says it: it begins anew.\n");
    }
    let mut remarks = Vec::new();
    if lists.iter().any(|list| list.timeless) {
        let _: std::fmt::Result = write!(text, "# {}\n# {}\n", TIMELESS[0], TIMELESS[1]);
        remarks.push(TIMELESS.join(" "));
    }
    let mut rules = Vec::new();
    for list in lists {
        let name = clean(&list.name);
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = writeln!(text, "\n# {name}: {} sources", list.sources.len());
        for (source, time) in &list.sources {
            let _: std::fmt::Result = match time {
                Some(seconds) => writeln!(text, "{source} {seconds}s"),
                None => writeln!(text, "{source}"),
            };
        }
        for (place, entry, reason) in &list.not {
            let [place, entry, reason] = [place, entry, reason].map(|text| clean(text));
            // A JSON entry has only a place.
            let named = if entry.is_empty() { place.clone() } else { format!("{place}: {entry}") };
            let _: std::fmt::Result = writeln!(text, "# Not translated, {named}\n#   {reason}");
            rules.push(Entry {
                place,
                rule: entry,
                outcome: Outcome::NotTranslated,
                differences: Vec::new(),
                reason: Some(reason),
                paths: Vec::new(),
                effects: Vec::new(),
                forwarded: false,
            });
        }
    }
    let translated = lists.iter().map(|list| list.sources.len()).sum();
    Imported { text, format: from.to_owned(), translated, remarks, rules, is_list: true }
}
