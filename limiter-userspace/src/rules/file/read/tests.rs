//! A file that is read by its items is the file that is read whole, or it is read whole.

use proptest::prelude::*;

use super::*;

const MAX_FRAME: u64 = 1514;

fn whole(text: &str) -> Result<RuleFile, Failure> {
    piece(text, Places::All, MAX_FRAME)
}

/// Reads a file by its items, whatever its size.
fn by_items(text: &str, threads: usize) -> Option<RuleFile> {
    side_by_side(&Divided::of(text)?, threads, MAX_FRAME)
}

/// How many of a file's items are of a form that is known by then.
fn alike(text: &str) -> usize {
    let items = Divided::of(text).unwrap().items;
    let mut forms = Forms::default();
    items.iter().filter(|item| forms.alike(**item, MAX_FRAME).is_some()).count()
}

const LIMIT: &str = "rate_limit: {unit: second, requests_per_unit: 5}";

#[test]
fn items_are_put_together_in_their_order() {
    let rule = |n: u32| format!("  - {{key: remote_address, value: 10.0.0.{n}, {LIMIT}}}\n");
    let keyed = "  - key: destination_port # all\n    value: [22, 23]\n    rate_limit: {unit: minute, requests_per_unit: 1}\n";
    let head = "domain: x\nreplies: {unit: second, requests_per_unit: 1}\ndescriptors:\n";
    let text = format!("{head}{}{}{keyed}{}\n", rule(1), rule(2), rule(3));
    for threads in 1..5 {
        let file = by_items(&text, threads).unwrap();
        assert_eq!(file, whole(&text).unwrap());
        assert_eq!((file.rules.rules.len(), file.rules.keyed.len()), (3, 2));
    }
    // The same rule twice, in one part or in two; and what is no item.
    for wrong in [rule(2), "  - 5\n".into(), "  -\n".into()] {
        for threads in 1..5 {
            assert_eq!(by_items(&format!("{text}{wrong}"), threads), None, "{wrong}");
        }
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
    assert_eq!(read(&text, MAX_FRAME).unwrap(), whole(&text).unwrap());
    text.push_str(&rule(20_000).replace("unit: second", "unit: fortnight"));
    let (place, problem) = read(&text, MAX_FRAME).unwrap_err();
    let place = place.unwrap();
    assert_eq!((place.line, place.column), (20_002, 63), "{problem}");
}

/// Each with two addresses, to be put in the place of `A` and `B`.
const ALIKE: [&str; 13] = [
    "  - {key: remote_address, value: A, LIMIT}\n  - {key: remote_address, value: B, LIMIT}\n",
    "  - {key: remote_address, value: [A, B], LIMIT}\n",
    "  - key: remote_address\n    value: A\n    LIMIT\n\n  - key: remote_address\n    value: B\n    LIMIT\n",
    "  - key: remote_address\n    value:\n      - A\n      - B\n    LIMIT\n    action: drop\n",
    "  - key: remote_address\n    LIMIT\n    value:\n    - A\n    - B\n  # done\n",
    "  - {key: destination_port, value: 22, descriptors: [{key: remote_address, value: [A, B], LIMIT}]}\n",
    "  - {key: remote_address, value: [A, B], descriptors: [{key: protocol, value: udp, LIMIT}]}\n",
    "  - key: remote_address\n    value:\n      - A\n      - B\n    descriptors:\n      - key: vlan\n        LIMIT\n",
    // With names.
    "  - {key: remote_address, value: A, NAMED of-A}}\n  - {key: remote_address, value: B, NAMED n2_x.}}\n",
    "  - {NAMED n1}, key: remote_address, value: A}\n  - {NAMED longer-2}, key: remote_address, value: B}\n",
    "  - key: remote_address\n    value: A\n    rate_limit:\n      unit: second\n      requests_per_unit: 5\n      name: n-1\n  - key: remote_address\n    value: B\n    rate_limit:\n      unit: second\n      requests_per_unit: 5\n      name: inner-2\n",
    "  - rate_limit:\n      name: n-1\n      unit: second\n      requests_per_unit: 5\n    key: remote_address\n    value: [A, B]\n",
    "  - {key: destination_port, value: 22, descriptors: [{key: remote_address, value: [A, B], NAMED n1}}]}\n",
];

fn of_form(form: &str, first: &str, second: &str) -> String {
    // Of words that have none of these letters.
    let named = "rate_limit: {unit: second, requests_per_unit: 5, name:";
    // A name is no address.
    let form = form.replace("NAMED", named).replace("of-A", "of-1");
    form.replace("LIMIT", LIMIT).replace('A', first).replace('B', second)
}

#[test]
fn forms_are_recognised() {
    for form in ALIKE {
        for (first, second) in [
            ("10.0.0.1", "10.20.30.0/24"),
            ("2001:db8:1:2::/64", "fe80::1"),
            ("1.1.1.1", "1:2:3:4:5:6:7:8"),
        ] {
            let text = format!("descriptors:\n{}", of_form(form, first, second));
            assert_eq!(alike(&text), Divided::of(&text).unwrap().items.len(), "{text}");
            assert_eq!(by_items(&text, 1), Some(whole(&text).unwrap()), "{text}");
        }
    }
}

#[test]
fn what_can_hide_something_is_no_known_form() {
    for item in [
        // A value that goes on; other places for addresses; a comment; quotes; an anchor.
        "  - {key: remote_address, value: A B, LIMIT}\n",
        "  - {key: remote_address, value: A\n      B, LIMIT}\n",
        "  - {key: remote_address, value: [A,B], LIMIT}\n",
        "  - {key: masked_remote_address, v4_prefix_mask_len: 24, value: A, LIMIT}\n",
        "  - {key: inner_remote_address, value: A, LIMIT}\n",
        "  - {key: destination_address, value: A, LIMIT}\n",
        "  - {key: destination_address, value: A, descriptors: [{key: remote_address, LIMIT}]}\n",
        "  - {key: destination_address, value: A, descriptors: [{key: remote_address, value: B, LIMIT}]}\n",
        "  - {key: remote_address, value: A, LIMIT} # B\n",
        "  - {key: remote_address, value: \"A\", LIMIT}\n",
        "  - {key: remote_address, value: &a A, LIMIT}\n",
        "  - {key: remote_address, value : A, LIMIT}\n",
        "  - {key: remote_address, value: A, LIMIT}, {key: vlan}\n",
    ] {
        let text = format!("descriptors:\n{}", of_form(item, "10.0.0.1", "10.0.0.2"));
        assert_eq!(alike(&text), 0, "{text}");
        assert!(by_items(&text, 1).is_none_or(|file| Ok(file) == whole(&text)), "{text}");
    }
}

/// Words that are no texts, that go on, that are not the only name, or that are none of the rule.
#[test]
fn not_every_word_is_a_name() {
    for name in ["yes", "null", "5", "1e5", "n1 n2", "n1\n   n2", "n1, name: n2", "'n1'", "n:1"] {
        let item = |address: &str| {
            format!(
                "  - {{key: remote_address, value: {address}, rate_limit: {{unit: second, requests_per_unit: 5, name: \
                 {name}}}}}\n"
            )
        };
        let text = format!("descriptors:\n{}{}", item("10.0.0.1"), item("10.0.0.2"));
        assert!(by_items(&text, 1).is_none_or(|file| Ok(file) == whole(&text)), "{text}");
    }
    // The budget's name is not that of a rule.
    let text = format!(
        "budgets:\n  - {{name: b1, {LIMIT}}}\ndescriptors:\n  - {{key: remote_address, value: 10.0.0.1, shared: b1, \
         {LIMIT}}}\n"
    );
    assert!(by_items(&text, 1).is_none_or(|file| Ok(file) == whole(&text)), "{text}");
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
    let rule = |n: u8| format!("  - {{key: remote_address, value: 10.1.0.{n}, {LIMIT}}}");
    prop_oneof![
        6 => any::<u8>().prop_map(rule),
        1 => prop::sample::select(&LINES[..]).prop_map(str::to_owned),
    ]
}

/// Items of a few forms, with addresses of all kinds.
fn items() -> impl Strategy<Value = String> {
    let address = prop_oneof![
        any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|address| address.to_string()),
        (any::<u16>(), 16..=24_u8).prop_map(|(n, length)| format!("10.{}.0.0/{length}", n & 255)),
        prop::sample::select(
            &["0.0.0.0/0", "::/0", "::1", "fe80::", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"][..]
        )
        .prop_map(str::to_owned),
    ];
    let form = prop_oneof![prop::sample::select(&ALIKE[..3]), prop::sample::select(&ALIKE[8..10]),]
        .boxed();
    let form = prop_oneof![3 => form, 1 => prop::sample::select(&ALIKE[..])];
    (form, address.clone(), address).prop_map(|(form, a, b)| of_form(form, &a, &b))
}

/// What changes the meaning of a text.
const MARKS: [&str; 28] = [
    " ",
    "\n",
    "\n  ",
    "\n  - ",
    ":",
    ": ",
    ",",
    ", ",
    "[",
    "]",
    "{",
    "}",
    "#",
    " #",
    "'",
    "\"",
    "&a ",
    "*a",
    "|\n",
    "- ",
    "?",
    "value: ",
    "1.2.3.4",
    "/",
    "name: ",
    "n1",
    "name: n3, ",
    "yes",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_division_changes_what_a_file_says(
        lines in prop::collection::vec(line(), 1..16),
        threads in 1..5_usize,
    ) {
        let text = format!("descriptors:\n{}\n", lines.join("\n"));
        if let Some(file) = by_items(&text, threads) {
            prop_assert_eq!(Ok(file), whole(&text), "{}", text);
        }
    }

    /// Also in a file that was changed at some places.
    #[test]
    fn no_form_changes_what_a_file_says(
        items in prop::collection::vec(items(), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..2_usize, prop::sample::select(&MARKS[..])), 0..3),
        threads in 1..3_usize,
    ) {
        let mut text = format!("descriptors:\n{}", items.concat());
        for (place, removed, mark) in changes {
            let at = place.index(text.len());
            let end = (at + removed).min(text.len());
            text.replace_range(at..end, mark);
        }
        if let Some(file) = by_items(&text, threads) {
            prop_assert_eq!(Ok(file), whole(&text), "{}", text);
        }
    }
}
