//! From the rules of another program to a rule file or a list.
//!
//! The first byte of an input says which format it is read as, and whether the rules only count;
//! the rest is the text.

use std::net::IpAddr;

use limiter_import::{Format, Options, Outcome, import};
use limiter_rules::{Installed, RuleFile};
use limiter_text::plain::is_plain;

use crate::rules::plan;

/// The largest frame that byte bursts are checked against.
const MAX_FRAME: u64 = 1522;

/// Longer texts take longer, and have nothing new.
pub const MAX_LENGTH: usize = 1 << 14;

/// The bit of the first byte that asks for rules that only count.
const SHADOW: u8 = 0x80;

/// The input for a text that is read as `format`; none to look for it in the text.
pub fn input(format: Option<Format>, text: &[u8]) -> Vec<u8> {
    let place = Format::NAMED.iter().position(|(_, named)| Some(*named) == format);
    let first = place.map_or(!SHADOW, |place| u8::try_from(place).unwrap_or(0));
    [&[first], text].concat()
}

/// Checks everything that is promised of any text.
///
/// # Panics
///
/// When a promise is broken.
pub fn check(input: &[u8]) {
    let Some((first, text)) = input.split_first() else { return };
    if text.len() > MAX_LENGTH {
        return;
    }
    let format = Format::NAMED.get(usize::from(first & !SHADOW)).map(|(_, format)| *format);
    let options = Options { format, shadow: first & SHADOW != 0, set: None };
    let imported = match import(text, &options) {
        Ok(imported) => imported,
        Err(error) => {
            let error = error.to_string();
            assert!(!error.is_empty() && !error.contains("report this as a bug"), "{error}");
            assert!(error.chars().all(is_plain), "an error that steers a terminal: {error:?}");
            return;
        }
    };
    let steers = imported.text.chars().find(|c| !is_plain(*c) && *c != '\n');
    assert_eq!(steers, None, "{}", imported.text);
    for entry in &imported.rules {
        let refused = entry.outcome == Outcome::NotTranslated;
        assert!(!refused || entry.reason.is_some(), "no reason: {entry:?}");
    }
    if imported.is_list {
        list(&imported.text);
    } else {
        rule_file(&imported.text);
    }
    let again = import(text, &options).expect("a text that was taken once");
    assert_eq!(again, imported, "another result the second time");
}

/// Checks that a rule file is taken, and can be put in force.
fn rule_file(text: &str) {
    let file = match RuleFile::parse("imported.yaml", text.as_bytes(), MAX_FRAME) {
        Ok(file) => file,
        Err(error) => panic!("a rule file that is refused: {error}\n{text}"),
    };
    if let Err(error) = plan(&Installed::default(), &file.rules, 1) {
        // A machine has so much room, and not every interface; all else is for the importer to say.
        let of_machine = ["room", "interface", "slots"].iter().any(|word| error.contains(word));
        assert!(of_machine, "rules that cannot be put in force: {error}\n{text}");
    }
}

/// Checks that every line of a list is a source, and the time for which it is listed.
fn list(text: &str) {
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(' ');
        let source = words.next().unwrap_or_default();
        let (address, length) = source.split_once('/').unwrap_or((source, "0"));
        let is_source = address.parse::<IpAddr>().is_ok() && length.parse::<u8>().is_ok();
        let is_time = words.next().is_none_or(|time| {
            time.strip_suffix('s').is_some_and(|seconds| seconds.parse::<u64>().is_ok())
        });
        assert!(is_source && is_time && words.next().is_none(), "no entry of a list: {line}");
    }
}
