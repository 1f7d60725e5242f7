//! Tables of rules for packets that go out, or in both directions.

use limiter_common::compact::{compact_bucket_key, compact_key};
use limiter_common::source::{MAPPED, Source};
use limiter_common::wire::{ActionKind, Count, KeyName};

use super::*;
use crate::model::{Direction, SOURCE_MASKS};

/// One rule in each direction.
fn each(keys: &str) -> RuleSet {
    let rules: Vec<String> = Direction::NAMED
        .iter()
        .zip(1..)
        .map(|((way, _), burst)| {
            format!(
                "  - {{{keys}, direction: {way}, rate_limit: {{rate: 10/s, burst: {burst}}}}}\n"
            )
        })
        .collect();
    parse(&format!("descriptors:\n{}", rules.concat()))
}

/// The table of the rules of a direction.
fn table(plan: &Plan, direction: Direction) -> Option<Table> {
    let tables = plan.tables.tables.iter().map(|(table, _)| *table);
    tables.into_iter().find(|table| Direction::of_fields(table.fields) == direction)
}

#[test]
fn only_incoming_packets_have_a_source_table() {
    let mut maps = Maps::default();
    let plan = maps.apply(&each("key: remote_address"));
    assert_eq!(maps.installed.rules.len(), 1);
    let Limit { tolerance, increment, .. } = maps.source("").limit;
    assert_eq!(tolerance, increment, "the rule for what comes in");
    assert_eq!(plan.tables.tables.len(), 2);
    let sources = field::SOURCE | field::V4 | field::V6;
    for (direction, fields) in [(Direction::Out, sources | field::OUT), (Direction::Both, sources)]
    {
        let table = table(&plan, direction).unwrap();
        assert_eq!(table.fields, fields);
        assert!(!table.is_of_sources());
        // A bucket of 60 bytes for an IPv4 address.
        assert_ne!(table.compact, 0, "{direction:?}");
        let source = [0, MAPPED | u64::from_ne_bytes([0, 0, 0, 0, 203, 0, 113, 9])];
        let key = TableKey { table: table.id, version: 4, source, ..TableKey::EMPTY };
        let compact = compact_bucket_key(&table, &key).unwrap();
        assert_eq!(compact_key(&table, &compact), Some(key));
        assert_eq!(maps.installed.tables.compact_key(&compact), Some(key));
    }
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}

/// A rule by source for which the source table has no room is in a table of its own direction.
#[test]
fn a_source_with_several_limits_has_the_table_of_its_direction() {
    let two = "rate_limits: [{rate: 10/s}, {rate: 5 syns/s}]";
    let rules: Vec<String> = Direction::NAMED
        .iter()
        .map(|(way, _)| format!("  - {{key: remote_address, direction: {way}, {two}}}\n"))
        .collect();
    let mut maps = Maps::default();
    let plan = maps.apply_text(&format!("descriptors:\n{}", rules.concat()));
    assert!(maps.installed.rules.is_empty());
    let of_sources: Vec<_> = Direction::NAMED
        .iter()
        .map(|(_, direction)| table(&plan, *direction).unwrap().is_of_sources())
        .collect();
    assert_eq!(of_sources, [true, false, false]);
    assert!(maps.keyed_source("").is_some());
}

#[test]
fn the_header_says_whether_outgoing_packets_are_asked_for() {
    for (direction, has_out) in [("in", false), ("out", true), ("both", true)] {
        for key in ["key: remote_address", "key: vlan", "key: generic_key, value: all"] {
            let mut maps = Maps::default();
            let plan = maps.apply_text(&format!(
                "descriptors:\n  - {{{key}, direction: {direction}, {LIMIT}}}\n"
            ));
            assert_eq!(plan.tables.header.has_out(), has_out, "{key} {direction}");
            assert_eq!(plan.tables.header.is_plain(), !has_out && key.contains("remote"));
        }
    }
    assert!(!Maps::default().apply_text("descriptors: []\n").tables.header.has_out());
}

/// Outgoing IPv4 packets take the short way only if nothing but their address has to be known.
#[test]
fn the_header_says_whether_the_destination_is_all_there_is_to_know() {
    let own = format!("{{key: remote_address, direction: out, {LIMIT}}}");
    let both = format!("{{key: remote_address, direction: both, {LIMIT}}}");
    let prefix =
        |net| format!("{{key: remote_address, value: \"{net}\", direction: out, {LIMIT}}}");
    let within =
        format!("{{key: vlan, direction: out, descriptors: [{{key: remote_address, {LIMIT}}}]}}");
    let wide = format!(
        "{{key: masked_remote_address, v4_prefix_mask_len: 24, v6_prefix_mask_len: 64, direction: \
         out, {LIMIT}}}"
    );
    let flows = "{key: vlan, rate_limit: {rate: 9 flows/s}}".to_owned();
    let sources = format!("{{key: remote_address, {LIMIT}}}");
    let ports = format!("{{key: destination_port, {LIMIT}}}");
    for (rules, is_short) in [
        (vec![own.clone()], true),
        (vec![both.clone()], true),
        (vec![prefix("192.0.2.0/24")], true),
        (vec![own.clone(), sources, ports], true),
        (vec![prefix("2001:db8::/32")], false),
        (vec![within], false),
        (vec![wide], false),
        (vec![own.clone(), both], false),
        (vec![own, flows], false),
    ] {
        let text = format!("descriptors: [{}]\n", rules.join(", "));
        let header = Maps::default().apply_text(&text).tables.header;
        let [four, six] = [Source::V4([192, 0, 2, 7]), Source::V6([0x20, 1, 0, 0, 0, 0, 0, 0])];
        assert_eq!(header.only_out(&four).is_some(), is_short, "{text}");
        assert_eq!(header.only_out(&six), None);
        assert!(header.has_out());
    }
}

/// Each direction has a rule on all packets, with a bucket of its own.
#[test]
fn all_packets_of_a_direction_share_a_bucket() {
    let mut maps = Maps::default();
    let set = each("key: generic_key, value: all");
    let plan = maps.apply(&set);
    let mut budgets = BTreeSet::new();
    for (_, direction) in Direction::NAMED {
        let table = table(&plan, direction).unwrap();
        assert_eq!(table.fields, field::V4 | field::V6 | direction.fields());
        let record = maps.records[&table.fixed];
        assert_eq!(record.budget_tag, budget_tag(everything(direction)));
        assert!(budgets.insert(record.budget));
    }
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
    // What did not change goes on.
    let before = maps.installed.tables.clone();
    let again = maps.apply(&set);
    assert!(again.tables.records.is_empty() && again.tables.begun_budgets.is_empty());
    assert_eq!(maps.installed.tables.rules, before.rules);
}

/// Rules of one table are one list of keys in one direction: of each, the most specific wins.
#[test]
fn directions_are_asked_by_themselves() {
    let mut maps = Maps::default();
    let plan = maps.apply_text(&format!(
        "descriptors:
  - {{key: destination_port, value: 22, direction: in, {LIMIT}}}
  - {{key: source_port, value: 22, direction: out, {LIMIT}}}
  - {{key: destination_port, value: 22, direction: both, {LIMIT}}}
  - {{key: destination_port, value: 20-25, direction: both, {LIMIT}}}
"
    ));
    for (_, direction) in Direction::NAMED {
        let table = table(&plan, direction).unwrap();
        // The port of this side, in each of them.
        assert_eq!(table.fields & !field::CONDITIONS, field::DESTINATION_PORT);
        // The direction takes no room in the name of a key.
        assert!(KeyName::fits(&table, 4 << 24), "{direction:?}");
        assert_eq!(table.ranges.iter().any(|range| range.is_some()), direction == Direction::Both);
    }
}

/// Actions that outgoing packets may have, and what is counted.
#[test]
fn a_class_of_outgoing_packets_is_the_budget_of_that_name() {
    let mut maps = Maps::default();
    let set = parse(
        "budgets: [{name: slow, rate_limit: {rate: 5/s}}]
descriptors:
  - {key: remote_address, direction: out, action: {class: slow}, rate_limit: {rate: 9 flows/s}}
",
    );
    let plan = maps.apply(&set);
    let record = maps.record(&set, "direction=out remote_address");
    assert_eq!(record.limits[0].counts(), Count::Flows);
    assert!(plan.tables.header.flows());
    let action = maps.actions[&record.action];
    assert_eq!(action.kind(), ActionKind::Class);
    assert_eq!(maps.records[&action.target].budget_tag, budget_tag("slow"));
}

/// Nodes know shared limits by name: those of two directions have two.
#[test]
fn nodes_share_the_limits_of_each_direction() {
    let mut maps = Maps { cluster: Some(3), ..Maps::default() };
    let shared = "scope: cluster, rate_limit: {rate: 1000/s, burst: 500}";
    let rules: Vec<String> = Direction::NAMED
        .iter()
        .flat_map(|(way, _)| {
            [
                format!("  - {{key: remote_address, direction: {way}, {shared}}}\n"),
                format!("  - {{key: generic_key, value: x, direction: {way}, {shared}}}\n"),
            ]
        })
        .collect();
    let plan = maps.apply_text(&format!("descriptors:\n{}", rules.concat()));
    let names: BTreeSet<_> = plan.shared.rules.iter().map(|rule| &*rule.name).collect();
    let wanted = ["direction=both remote_address", "direction=out remote_address", "every source"];
    assert_eq!(names, BTreeSet::from(wanted));
    let tags: BTreeSet<_> = plan.shared.rules.iter().map(|rule| rule.limits[0].tag).collect();
    assert_eq!(tags.len(), 3);
    let budgets: BTreeSet<_> = plan.shared.budgets.iter().map(|shared| &*shared.name).collect();
    assert_eq!(budgets.len(), 3, "{budgets:?}");
}

#[test]
fn a_rule_s_number_is_that_of_its_direction() {
    let mut maps = Maps::default();
    let set = each("key: remote_address, value: 192.0.2.7");
    maps.apply(&set);
    let paths = set.rules.iter().map(|rule| &rule.path);
    let numbers: BTreeSet<_> = paths.map(|path| maps.installed.number(path, &interface)).collect();
    assert_eq!(numbers.len(), 3);
    assert!(!numbers.contains(&None));
    let other = Path::of([crate::model::Part::Source(SOURCE_MASKS, None)]).going(Direction::Out);
    assert_eq!(maps.installed.number(&other, &interface), None);
}
