//! A file that is read by its items is the file that is read whole, or it is read whole.

use proptest::prelude::*;

use super::*;

const MAX_FRAME: u64 = 1514;

fn whole(text: &str) -> Option<RuleFile> {
    piece(text, Places::All, MAX_FRAME)
}

/// Reads a file by its items, whatever its size.
fn by_items(text: &str, threads: usize, batch: usize) -> Option<RuleFile> {
    side_by_side(&Divided::of(text)?, threads, batch, MAX_FRAME)
}

const LIMIT: &str = "rate_limit: {unit: second, requests_per_unit: 5}";

#[test]
fn items_are_put_together_in_their_order() {
    let rule = |n: u32| format!("  - {{key: remote_address, value: 10.0.0.{n}, {LIMIT}}}\n");
    let keyed = "  - key: destination_port # all\n    value: [22, 23]\n    rate_limit: {unit: \
                 minute, requests_per_unit: 1}\n";
    let head = "domain: x\nreplies: {unit: second, requests_per_unit: 1}\ndescriptors:\n";
    let text = format!("{head}{}{}{keyed}{}\n", rule(1), rule(2), rule(3));
    for (threads, batch) in (1..5).flat_map(|threads| (1..5).map(move |batch| (threads, batch))) {
        let file = by_items(&text, threads, batch).unwrap();
        assert_eq!(file, whole(&text).unwrap());
        assert_eq!(file.rules.rules.len(), 5);
    }
    // One rule twice, in one part or in two; and text that is no item.
    for wrong in [rule(2), "  - 5\n".into(), "  -\n".into()] {
        for threads in 1..5 {
            let text = format!("{text}{wrong}");
            assert!((1..5).all(|batch| by_items(&text, threads, batch).is_none()), "{wrong}");
        }
    }
}

/// Fields that nobody knows end the reading of their item, and of no other.
#[test]
fn every_item_with_an_unknown_field_is_reported() {
    let bad = "- {key: remote_address, rateLimit: {rate: 1/s}}\n";
    let good = "- {key: remote_address, value: 192.0.2.1, rate_limit: {rate: 1/s}}\n";
    let rate = "- {key: vlan, rate_limit: {rate: 10r/s}}\n";
    let said = |text: &str| -> Vec<String> {
        let (_, failures) = read(text, MAX_FRAME);
        let line = |place: Option<Place>| place.map_or(0, |place| place.line);
        failures.iter().map(|(place, problem)| format!("{} {problem}", line(*place))).collect()
    };
    let output = said(&format!("domain: x\ndescriptors:\n{bad}{good}{rate}\n{bad}{good}"));
    let field = "unknown field \"rateLimit\": did you mean \"rate_limit\"?";
    let rate = "rate: \"10r/s\" is not a rate: did you mean 10/s?";
    let twice = "a second rule for 192.0.2.1, the first is in line 4: put the limits of both under \
                 `rate_limits` of one, or keep one";
    assert_eq!(
        output,
        [format!("3 {field}"), format!("5 {rate}"), format!("7 {field}"), format!("8 {twice}")]
    );
    // Items that cannot be distinguished, and what comes before them, are said as the whole says
    // it.
    for alone in [
        format!("descriptors:\n{bad}{bad}budgets: []\n"),
        format!("domian: x\ndescriptors:\n{bad}{bad}"),
        format!("descriptors:\n- &a {{key: vlan, rateLimit: 1}}\n{bad}"),
        format!("descriptors:\n- {{key: vlan, value: \"\n- 7\", rateLimit: 1}}\n{bad}"),
    ] {
        assert_eq!(said(&alone).len(), 1, "{alone}");
    }
}

#[test]
fn what_is_wrong_in_a_later_item_is_said_with_its_place() {
    let rule = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        format!("- {{key: remote_address, value: 10.{a}.{b}.{c}, {LIMIT}}}\n")
    };
    let mut text = String::from("descriptors:\n");
    text.extend((0..20_000).map(rule));
    assert!(text.len() > SMALLEST);
    assert_eq!(read(&text, MAX_FRAME), (whole(&text).unwrap(), Vec::new()));
    text.push_str(&rule(20_000).replace("unit: second", "unit: fortnight"));
    let (_, mut failures) = read(&text, MAX_FRAME);
    let (place, problem) = failures.pop().unwrap();
    assert!(failures.is_empty());
    let place = place.unwrap();
    assert_eq!((place.line, place.column), (20_002, 63), "{problem}");
}

/// Lines that begin and end what goes over several lines, and such as are rules.
const LINES: [&str; 32] = [
    "  - {key: remote_address, value: 10.0.0.1, rate_limit: *r}",
    "  - {key: remote_address, value: 10.0.0.2, rate_limit: &r {unit: second, requests_per_unit: \
     5}}",
    "  - {key: remote_address, value: 10.0.0.3, rate_limit: {unit: day, requests_per_unit: 5}}",
    "  - {key: remote_address, value: 10.0.0.4, rate_limit: {unit: day,",
    "  - requests_per_unit: 5}}",
    "    requests_per_unit: 5}}",
    "  - key: remote_address",
    "    value: 10.0.0.5",
    "    rate_limit: {unit: hour, requests_per_unit: 7}",
    "    rate_limit:",
    "      unit: second",
    "      requests_per_unit: 5",
    "    value:",
    "      - 10.0.0.6",
    "      - 10.0.0.7/32",
    "    value: [10.0.0.8,",
    "    10.0.0.9]",
    "    descriptors:",
    "      - {key: destination_port, value: 22, rate_limit: {unit: second, requests_per_unit: 5}}",
    "  - key: generic_key",
    "    value: 'a",
    "  - b'",
    "    value: |",
    "    value: >-",
    "        text",
    "      # a comment",
    "# a comment",
    "",
    "  -",
    "budgets:",
    "descriptors:",
    "---",
];

/// Mostly rules, so that some of the files are right.
fn line() -> impl Strategy<Value = String> {
    let rule = |n: u8| format!("  - {{key: remote_address, value: 10.1.0.{n}, {LIMIT}}}");
    prop_oneof![
        6 => any::<u8>().prop_map(rule),
        1 => prop::sample::select(&LINES[..]).prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_division_changes_what_a_file_says(
        lines in prop::collection::vec(line(), 1..16),
        threads in 1..5_usize,
        batch in 1..5_usize,
    ) {
        let text = format!("descriptors:\n{}\n", lines.join("\n"));
        if let Some(file) = by_items(&text, threads, batch) {
            prop_assert_eq!(Some(file), whole(&text), "{}", text);
        }
    }
}
