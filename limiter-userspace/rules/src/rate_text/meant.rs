//! The rate that somebody probably meant: `5k` for `5k/s`, `2Mb/s` for `2mbit/s`.

use super::RateText;

/// Spellings of what is counted, and how they are written here. Some have two meanings.
const SPELLINGS: [(&str, &[&str]); 41] = [
    ("p", &[""]),
    // As nginx writes requests.
    ("r", &[""]),
    ("reqs", &[""]),
    ("request", &[""]),
    ("hit", &[""]),
    ("hits", &[""]),
    ("conn", &[" syns", " flows"]),
    ("conns", &[" syns", " flows"]),
    ("connection", &[" syns", " flows"]),
    ("connections", &[" syns", " flows"]),
    ("sessions", &[" syns", " flows"]),
    ("pkt", &[""]),
    ("pkts", &[""]),
    ("packet", &[""]),
    ("packets", &[""]),
    ("req", &[""]),
    ("requests", &[""]),
    ("syn", &[" syns"]),
    ("flow", &[" flows"]),
    ("K", &["k"]),
    ("m", &["M"]),
    ("g", &["G"]),
    ("b", &["bit", "B"]),
    ("bits", &["bit"]),
    ("byte", &["B"]),
    ("bytes", &["B"]),
    ("kb", &["kbit", "kB"]),
    ("mb", &["mbit", "MB"]),
    ("gb", &["gbit", "GB"]),
    ("Kb", &["kbit"]),
    ("Mb", &["mbit"]),
    ("Gb", &["gbit"]),
    ("KB", &["kB"]),
    ("kbits", &["kbit"]),
    ("mbits", &["mbit"]),
    ("gbits", &["gbit"]),
    ("kbytes", &["kB"]),
    ("mbytes", &["MB"]),
    ("gbytes", &["GB"]),
    ("KBytes", &["kB"]),
    ("MBytes", &["MB"]),
];

/// Spellings of so much in a second. `mbps` is a megabyte to `tc`, and a megabit to most others.
const PER_SECOND: [(&str, &[&str]); 18] = [
    ("pps", &[""]),
    ("rps", &[""]),
    ("qps", &[""]),
    ("kpps", &["k"]),
    ("Kpps", &["k"]),
    ("Mpps", &["M"]),
    ("mpps", &["M"]),
    ("bps", &["bit", "B"]),
    ("kbps", &["kbit", "kB"]),
    ("Kbps", &["kbit", "kB"]),
    ("mbps", &["mbit", "MB"]),
    ("Mbps", &["mbit", "MB"]),
    ("gbps", &["gbit", "GB"]),
    ("Gbps", &["gbit", "GB"]),
    ("Bps", &["B"]),
    ("kBps", &["kB"]),
    ("MBps", &["MB"]),
    ("GBps", &["GB"]),
];

/// Spellings of units of time that are not read, and how they are written here.
const TIMES: [(&str, &str); 11] = [
    ("S", "s"),
    ("secs", "s"),
    ("seconds", "s"),
    ("m", "min"),
    ("mins", "min"),
    ("minute", "min"),
    ("minutes", "min"),
    ("hr", "hour"),
    ("hours", "hour"),
    ("days", "day"),
    ("weeks", "week"),
];

/// The rates that a text may have been meant as, each one that is read.
pub(super) fn meant(text: &str) -> Vec<String> {
    let words: String = text
        .split_whitespace()
        .map(|word| if matches!(word, "per" | "a" | "an") { "/" } else { word })
        .collect();
    let (amount, per) = words.split_once('/').unwrap_or((&words, ""));
    let amount = ungrouped(amount);
    let digits = amount.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(amount.len());
    let (number, suffix) = amount.split_at(digits);
    let digits = per.find(|c: char| !c.is_ascii_digit()).unwrap_or(per.len());
    let (multiplier, unit) = per.split_at(digits);
    let known = TIMES.iter().find(|(spelling, _)| *spelling == unit);
    let unit = known.map_or(unit, |(_, unit)| unit);
    let known = PER_SECOND.iter().chain(&SPELLINGS).find(|(spelling, _)| *spelling == suffix);
    let sizes = known.map_or_else(|| vec![suffix], |(_, sizes)| sizes.to_vec());
    let unit = if unit.is_empty() && multiplier.is_empty() { "s" } else { unit };
    let rates = sizes.into_iter().map(|size| format!("{number}{size}/{multiplier}{unit}"));
    rates.filter(|rate| rate != text && RateText::read(rate).is_ok()).collect()
}

/// A number without what stands between its thousands, as in 1,000 and `1_000`.
fn ungrouped(amount: &str) -> String {
    let grouped = amount.find(|c: char| !c.is_ascii_digit() && !matches!(c, ',' | '_' | '\''));
    let (number, behind) = amount.split_at(grouped.unwrap_or(amount.len()));
    let mut groups = number.split([',', '_', '\'']);
    let first = groups.next().unwrap_or_default();
    let mut groups = groups.peekable();
    if first.is_empty() || groups.peek().is_none() || groups.any(|group| group.len() != 3) {
        return amount.to_owned();
    }
    number.chars().filter(char::is_ascii_digit).chain(behind.chars()).collect()
}
