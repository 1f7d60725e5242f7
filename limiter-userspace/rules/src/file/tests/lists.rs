//! The allow and the deny list of a rule file.

use super::fields::refused;
use super::*;
use crate::model::{Listing, until_text};

fn listed(text: &str) -> Vec<(String, String)> {
    let lists = parse(text).unwrap().rules.lists;
    lists.iter().map(|(at, entry)| (at.to_string(), entry.to_string())).collect()
}

#[test]
fn entries_have_reasons_and_ends() {
    let text = "allow:
  - 192.0.2.7
  - {address: 198.51.100.0/24, reason: our office, until: 2026-12-31}
  - address: 2001:db8::1
    until: 2027-03-01T18:00:00Z
deny:
  - 203.0.113.0/24
descriptors: []
";
    let all = [
        ("192.0.2.7", "allow"),
        ("198.51.100.0/24", "allow until 2027-01-01T00:00:00Z (our office)"),
        ("203.0.113.0/24", "deny"),
        ("2001:db8::/64", "allow until 2027-03-01T18:00:00Z"),
    ];
    assert_eq!(listed(text), all.map(|(at, entry)| (at.to_owned(), entry.to_owned())));
    let file = parse(text).unwrap();
    let place = file.places[&Subject::Listed(source_text::parse("2001:db8::1").unwrap())];
    assert_eq!(place.to_string(), "4:5");
    // Lists alone are something.
    for text in ["allow: [192.0.2.7]\n", "deny: [192.0.2.7]\n"] {
        parse(text).unwrap();
    }
    assert!(parse("deny: [192.0.2.7]\n").unwrap().rules.limits_anybody());
    assert!(!parse("allow: [192.0.2.7]\n").unwrap().rules.limits_anybody());
}

#[test]
fn entries_refuse_what_they_cannot_be() {
    let entry = |fields: &str| format!("allow:\n  - {{address: 192.0.2.7, {fields}}}\n");
    refused(&[
        (
            "allow: []\n".to_owned(),
            "1:1: no rules are in the file, and so nobody would be limited: \
          write them, or `descriptors: []` if none are meant",
        ),
        (
            "deny:\n".to_owned(),
            "1:1: no rules are in the file, and so nobody would be limited: \
          write them, or `descriptors: []` if none are meant",
        ),
        (
            "allow:\n  - 192.0.2.7/24\n".to_owned(),
            "2:5: allow: 192.0.2.7/24 has host bits set: write 192.0.2.0/24",
        ),
        (
            "deny:\n  - {address: example.org}\n".to_owned(),
            "2:15: deny: \"example.org\" is not an IP address or prefix: write one like 192.0.2.7, \
             192.0.2.0/24 or 2001:db8::/48",
        ),
        (
            "deny:\n  - \n".to_owned(),
            "2:5: deny has no value: write an address or a prefix, or remove the line",
        ),
        (
            "deny:\n  - {reason: x}\n".to_owned(),
            "2:5: address is missing: write an address or a prefix, or remove the line",
        ),
        (
            "deny:\n  - 0.0.0.0/0\n".to_owned(),
            "2:5: deny: 0.0.0.0/0 is a large part of all addresses: write the prefixes that are \
             meant",
        ),
        (
            "allow:\n  - \"::/0\"\n".to_owned(),
            "2:5: allow: ::/0 is a large part of all addresses: write the prefixes that are meant",
        ),
        (
            "allow:\n  - 192.0.2.7\ndeny:\n  - 192.0.2.7/32\n".to_owned(),
            "4:5: a second list entry 192.0.2.7, the first is in line 2: keep one",
        ),
        (
            "allow:\n  - 2001:db8::1\n  - 2001:db8::2\n".to_owned(),
            "3:5: a second list entry 2001:db8::/64, the first is in line 2: keep one",
        ),
        (
            entry("until: soon"),
            "2:33: until: \"soon\" is no time: write a day like 2026-12-31, or \
             2026-12-31T18:00:00Z, in UTC",
        ),
        (
            entry("until: 2026-13-01"),
            "2:33: until: \"2026-13-01\" is no time: write a day like 2026-12-31, or \
             2026-12-31T18:00:00Z, in UTC",
        ),
        (
            entry("until: 1h"),
            "2:33: until: \"1h\" is no time: write a day like 2026-12-31, or \
             2026-12-31T18:00:00Z, in UTC",
        ),
        (
            entry("until:"),
            "2:31: until has no value: write a day like 2026-12-31, or remove the line",
        ),
        (entry("reason: ''"), "2:34: reason has no value: give one, or remove the line"),
        (
            entry(&format!("reason: {}", "x".repeat(129))),
            "2:34: reason is longer than 128 characters: shorten it",
        ),
        (entry("reasn: x"), "2:26: unknown field \"reasn\": did you mean \"reason\"?"),
    ]);
}

#[test]
fn an_end_is_written_as_it_is_read() {
    for until in [0, 1, 1_798_761_600, 253_402_300_799] {
        let text = format!("deny: [{{address: 192.0.2.7, until: {}}}]\n", until_text(until));
        let lists = parse(&text).unwrap().rules.lists;
        let expected = Listing { allow: false, reason: None, until: Some(until) };
        assert_eq!(lists.into_values().next(), Some(expected));
    }
}

#[test]
fn lists_that_do_not_fit_are_refused() {
    let prefixes = (0..=65_536u32)
        .map(|n| format!("  - 10.{}.{}.0/{}\n", n >> 8 & 255, n & 255, 24 + (n >> 16)));
    let text: String = std::iter::once("deny:\n".to_owned()).chain(prefixes).collect();
    let error = parse(&text).unwrap_err().to_string();
    let words =
        "r.yaml: the lists have room for 65536 prefixes: remove some, or list wider prefixes";
    assert_eq!(error, words);
}
