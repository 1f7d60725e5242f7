//! A file that is read in pieces is the file that is read whole, or it is read whole.

use proptest::prelude::*;

use super::super::pieces::divided;
use super::*;

const MAX_FRAME: u64 = 1514;

fn whole(text: &str) -> Result<RuleFile, Failure> {
    piece(text, Places::All, MAX_FRAME)
}

#[test]
fn pieces_are_put_together() {
    let rule = |n: u32| {
        format!(
            "  - {{key: remote_address, value: 10.0.0.{n}, rate_limit: {{unit: second, requests_per_unit: 5}}}}\n"
        )
    };
    let keyed = "  - key: destination_port\n    value: [22, 23]\n    rate_limit: {unit: minute, requests_per_unit: 1}\n";
    let head = "domain: x\nreplies: {unit: second, requests_per_unit: 1}\ndescriptors:\n";
    let one = format!("{head}{}{}", rule(1), rule(2));
    let two = format!("\n\n\n\ndescriptors:\n{}{keyed}", rule(3));
    let together = side_by_side(&[one.as_str().into(), two.into()], MAX_FRAME).unwrap();
    assert_eq!(together, whole(&format!("{one}{}{keyed}", rule(3))).unwrap());
    assert_eq!((together.rules.rules.len(), together.rules.keyed.len()), (3, 2));
    // The same rule twice, each in a piece of its own; and no list.
    let again = format!("descriptors:\n{}", rule(2));
    assert!(side_by_side(&[one.as_str().into(), again.into()], MAX_FRAME).is_none());
    assert!(side_by_side(&[one.into(), "descriptors: 5\n".into()], MAX_FRAME).is_none());
}

#[test]
fn what_is_wrong_in_a_later_piece_is_said_with_its_place() {
    let rule = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        format!(
            "- {{key: remote_address, value: 10.{a}.{b}.{c}, rate_limit: {{unit: second, requests_per_unit: 5}}}}\n"
        )
    };
    let mut text = String::from("descriptors:\n");
    text.extend((0..20_000).map(rule));
    assert!(pieces(&text, 4).len() > 1);
    assert_eq!(read(&text, MAX_FRAME).unwrap(), whole(&text).unwrap());
    text.push_str(&rule(20_000).replace("unit: second", "unit: fortnight"));
    let (place, problem) = read(&text, MAX_FRAME).unwrap_err();
    let place = place.unwrap();
    assert_eq!((place.line, place.column), (20_002, 63), "{problem}");
}

/// Lines that begin and end what goes over several lines, and such as are rules.
const LINES: [&str; 32] = [
    "  - {key: remote_address, value: 10.0.0.1, rate_limit: *r}",
    "  - {key: remote_address, value: 10.0.0.2, rate_limit: &r {unit: second, requests_per_unit: 5}}",
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
    let rule = |n: u8| {
        format!(
            "  - {{key: remote_address, value: 10.1.0.{n}, rate_limit: {{unit: second, requests_per_unit: 5}}}}"
        )
    };
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
        most in 2..5_usize,
    ) {
        let text = format!("descriptors:\n{}\n", lines.join("\n"));
        if let Some(pieces) = divided(&text, 1, most)
            && let Some(file) = side_by_side(&pieces, MAX_FRAME)
        {
            prop_assert_eq!(Ok(file), whole(&text), "{}", text);
        }
    }
}
