//! Scalars that YAML takes for numbers or booleans mean what is written, or are refused.

use super::*;
use crate::model::{Fact, Part};

/// A rule on a key with this value, in each of the ways in which a value may stand.
fn with_value(key: &str, value: &str) -> [String; 5] {
    let limit = "rate_limit: {rate: 5/s}";
    [
        format!("descriptors:\n  - key: {key}\n    value: {value}\n    {limit}\n"),
        format!("descriptors:\n  - {{key: {key}, value: {value}, {limit}}}\n"),
        format!("descriptors:\n  - {{key: {key}, value: [{value}], {limit}}}\n"),
        format!("descriptors:\n  - key: {key}\n    value:\n    - {value}\n    {limit}\n"),
        // Behind characters of several bytes, and read from another place.
        format!(
            "# \u{e4}\u{f6}\u{fc} \u{1f600}\ndomain: &it {value}\ndescriptors:\n  - {{key: {key}, \
             value: *it, {limit}}}\n"
        ),
    ]
}

/// Texts that the reader takes for another number than their digits say, or for no number.
const NO_NUMBERS: [&str; 15] = [
    "22/tcp",
    "0o22",
    "0x16",
    "0b10110",
    "1e3",
    "1E3",
    "22.0",
    ".5",
    "1_000",
    "0o7-0x16",
    "+22",
    "-22",
    "TRUE",
    "True",
    "123456789012345678901234567890",
];

/// The same number in ways that all say its digits. A zero before them means nothing: files go
/// through many programs that read and write numbers in their own ways.
const NUMBERS: [&str; 6] = ["22", "\"22\"", "'22'", "022", "'022'", "!!str 22"];

#[test]
fn a_number_of_a_key_is_in_decimal_or_refused_as_it_is_written() {
    for fact in Fact::ALL.into_iter().filter(|fact| fact.most().is_some()) {
        for text in NO_NUMBERS {
            for file in with_value(fact.key(), text) {
                let error = parse(&file).expect_err(&file).to_string();
                assert!(error.contains(&format!("value: {text:?} ")), "{error}\n{file}");
                let place = error.split(':').nth(1).unwrap().parse::<usize>().unwrap();
                let line = file.lines().nth(place - 1).unwrap();
                assert!(line.contains(text) || line.contains("*it"), "{error}\n{file}");
            }
        }
        for text in NUMBERS {
            for file in with_value(fact.key(), text) {
                let rules = parse(&file).unwrap_or_else(|error| panic!("{error}\n{file}")).rules;
                let path = rules.rules[0].path.parts.to_vec();
                assert_eq!(path, [Part::Fact(fact, Some(22.into()))], "{file}");
            }
        }
    }
    // A number by its own word.
    for text in ["!!int 22", "!!int \"22\""] {
        let [block, flow, ..] = with_value("vlan", text);
        for file in [block, flow] {
            let rules = parse(&file).unwrap_or_else(|error| panic!("{error}\n{file}")).rules;
            assert_eq!(rules.rules[0].path.to_string(), "vlan=22", "{file}");
        }
    }
    for text in [".inf", ".NaN", "1e999"] {
        for file in with_value("destination_port", text) {
            assert!(parse(&file).expect_err(&file).place.is_some(), "{file}");
        }
    }
}

#[test]
fn a_name_is_the_text_that_is_written() {
    for text in ["0o22", "1e3", "0x16", "1_000", "022", "22.0", "TRUE", "False", "+1", "12"] {
        for name in [text.to_owned(), format!("\"{text}\"")] {
            for file in with_value("interface", &name) {
                let rules = parse(&file).unwrap_or_else(|error| panic!("{error}\n{file}")).rules;
                let path = &rules.rules[0].path;
                assert_eq!(path.parts.to_vec(), [Part::Interface(Some(text.into()))], "{file}");
            }
            let [block, flow, ..] = with_value("generic_key", &name);
            for file in [block, flow] {
                let rules = parse(&file).unwrap_or_else(|error| panic!("{error}\n{file}")).rules;
                assert_eq!(rules.rules[0].label.as_deref(), Some(text), "{file}");
            }
        }
    }
}

#[test]
fn an_address_or_an_action_is_quoted_as_it_is_written() {
    for text in ["0x7f000001", "1e3", "017700000001", "2130706433", "1.5", "TRUE"] {
        for file in with_value("remote_address", text) {
            let error = parse(&file).expect_err(&file).to_string();
            assert!(error.contains(&format!("{text:?} is not an IP address")), "{error}\n{file}");
        }
        for list in ["allow", "deny"] {
            for file in [
                format!("{list}: [{text}]\ndescriptors: []\n"),
                format!("{list}:\n  - {text}\ndescriptors: []\n"),
                format!("{list}: [{{address: {text}}}]\ndescriptors: []\n"),
            ] {
                let error = parse(&file).expect_err(&file).to_string();
                assert!(error.contains(&format!("{text:?} is not an IP address")), "{error}");
            }
        }
        let file = format!(
            "descriptors:\n  - key: remote_address\n    action: {text}\n    rate_limit: {{rate: \
             5/s}}\n"
        );
        let error = parse(&file).expect_err(&file).to_string();
        assert!(error.contains(&format!("action: {text:?} is not known")), "{error}");
    }
}

#[test]
fn a_count_is_in_decimal_or_refused_as_it_is_written() {
    let limit = |field: &str, text: &str| {
        let fields = match field {
            "requests_per_unit" => format!("unit: second, requests_per_unit: {text}"),
            "unit_multiplier" => {
                format!("unit: second, requests_per_unit: 5, unit_multiplier: {text}")
            }
            _ => format!("rate: 5/s, {field}: {text}"),
        };
        format!("descriptors:\n  - {{key: remote_address, rate_limit: {{{fields}}}}}\n")
    };
    for field in ["requests_per_unit", "unit_multiplier", "burst"] {
        for text in ["0o12", "0x64", "1e3", "1_000", "+7", "TRUE"] {
            let file = limit(field, text);
            let error = parse(&file).expect_err(&file).to_string();
            assert!(error.contains(&format!("{field}: {text:?} ")), "{error}");
        }
        for text in ["10", "\"10\"", "010"] {
            parse(&limit(field, text)).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    for text in ["0o30", "0x18", "2_4", "24.0"] {
        let file = format!(
            "descriptors:\n  - {{key: masked_remote_address, v4_prefix_mask_len: {text}, \
             rate_limit: {{rate: 5/s}}}}\n"
        );
        let error = parse(&file).expect_err(&file).to_string();
        assert!(error.contains(&format!("v4_prefix_mask_len: {text:?} ")), "{error}");
    }
}

/// A mark at the head of a file moves no place.
#[test]
fn a_byte_order_mark_changes_no_number() {
    for file in with_value("destination_port", "22") {
        let with = format!("\u{feff}{file}");
        assert_eq!(parse(&with).unwrap().rules, parse(&file).unwrap().rules);
    }
    for file in with_value("destination_port", "0x16") {
        let error = parse(&format!("\u{feff}{file}")).expect_err(&file).to_string();
        assert!(error.contains("value: \"0x16\" does not fit"), "{error}");
    }
}
