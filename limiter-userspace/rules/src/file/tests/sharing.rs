//! `scope` and `cluster` of rules and budgets.

use std::time::Duration;

use limiter_sharing::OnPartition;

use super::fields::{LIMIT, refused, refused_by_both};
use super::*;
use crate::file::render;
use crate::model::{Share, Sharing};

fn budget(fields: &str) -> String {
    format!("budgets:\n  - {{name: b, {LIMIT}, {fields}}}\n")
}

fn sharing(fields: &str) -> Option<Sharing> {
    let text = budget(fields);
    let file = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    file.rules.budgets[0].limits.sharing.as_deref().copied()
}

#[test]
fn a_budget_holds_on_one_node_unless_it_says_cluster() {
    assert_eq!(sharing("scope: node"), None);
    assert_eq!(sharing("shadow_mode: true"), None);
    assert_eq!(sharing("scope: cluster"), Some(Sharing::default()));
    assert_eq!(sharing("scope: cluster, cluster: {}"), Some(Sharing::default()));
    let share = |thousandths| Share::new(thousandths).unwrap();
    let default = Sharing {
        sync: Duration::from_millis(200),
        share: share(250),
        share_of_burst: share(100),
        lease_cap: share(250),
        on_partition: OnPartition::Share,
        strict: false,
    };
    assert_eq!(Sharing::default(), default, "as docs/rules-reference.md has them");
    let other = Sharing {
        sync: Duration::from_millis(1500),
        share: share(125),
        share_of_burst: share(0),
        lease_cap: share(5),
        on_partition: OnPartition::Closed,
        strict: true,
    };
    assert_eq!(
        sharing(
            "scope: cluster, cluster: {sync: 1s 500ms, share: 12.5%, share_of_burst: 0%, \
             lease_cap: 0.5%, on_partition: closed, strict: true}"
        ),
        Some(other)
    );
}

#[test]
fn what_is_written_of_it_is_what_differs() {
    let text = |fields: &str| render("d", &parse(&budget(fields)).unwrap().rules, 1522).unwrap();
    assert!(!text("scope: node").contains("scope"));
    let plain = text("scope: cluster");
    assert!(plain.contains("\"scope\": \"cluster\"") && !plain.contains("sync"), "{plain}");
    let some = text("scope: cluster, cluster: {share: 2.5%, on_partition: open}");
    for part in ["\"share\": \"2.5%\"", "\"on_partition\": \"open\""] {
        assert!(some.contains(part), "{some}");
    }
    assert!(!some.contains("sync") && !some.contains("strict"), "{some}");
}

#[test]
fn sharing_refuses_what_it_cannot_be() {
    let field = |fields: &str| budget(&format!("scope: cluster, cluster: {{{fields}}}"));
    refused(&[
        (budget("scope: global"), "2:72: scope: \"global\" is not known: use node, cluster"),
        (budget("scope:"), "2:70: scope has no value: give one, or remove the line"),
        (
            budget("cluster: {sync: 1s}"),
            "2:74: cluster without `scope: cluster`: write that, or remove the field",
        ),
        (
            budget("scope: node, cluster: {sync: 1s}"),
            "2:87: cluster without `scope: cluster`: write that, or remove the field",
        ),
        (field("synk: 1s"), "2:91: unknown field \"synk\": did you mean \"sync\"?"),
        (
            field("sync: 49ms"),
            "2:97: sync: \"49ms\" is not 50ms to 10s in whole microseconds: write one like 5s, \
             1min, 2h or 1day",
        ),
        (
            field("sync: 11s"),
            "2:97: sync: \"11s\" is not 50ms to 10s in whole microseconds: write one like 5s, \
             1min, 2h or 1day",
        ),
        (
            field("sync: 50ms 1ns"),
            "2:97: sync: \"50ms 1ns\" is not 50ms to 10s in whole microseconds: write one like \
             5s, 1min, 2h or 1day",
        ),
        (
            field("sync: often"),
            "2:97: sync: \"often\" is no length of time: write one like 5s, 1min, 2h or \
             1day",
        ),
        (
            field("share: 25"),
            "2:98: share: \"25\" is no part of 0% to 100%: write one like 25% or 2.5%",
        ),
        (
            field("share: 100.1%"),
            "2:98: share: \"100.1%\" is no part of 0% to 100%: write one like 25% or 2.5%",
        ),
        (
            field("share: -1%"),
            "2:98: share: \"-1%\" is no part of 0% to 100%: write one like 25% or 2.5%",
        ),
        (
            field("share_of_burst: 2.55%"),
            "2:107: share_of_burst: \"2.55%\" is no part of 0% to 100%: write one like 25% or 2.5%",
        ),
        (
            field("on_partition: drop"),
            "2:105: on_partition: \"drop\" is not known: use share, open, closed",
        ),
        (
            field("on_partition: open, strict: true"),
            "2:119: strict beside `on_partition: open`: remove one of the two",
        ),
        (field("strict: maybe"), "2:99: neither true nor false: write one of them"),
    ]);
}

#[test]
fn a_rule_s_own_limits_are_shared_where_it_says_so() {
    let rule = |fields: &str| {
        let file = parse(&format!("descriptors:\n  - {{key: vlan, {fields}{LIMIT}}}\n")).unwrap();
        file.rules.rules[0].terms.limits().unwrap().sharing.as_deref().copied()
    };
    let of_requests = |fields: &str| {
        let limit = "rate_limit: {rate: 5/min}";
        let text = format!("domain: d\ndescriptors: [{{key: vlan, {fields}{limit}}}]\n");
        requests::tests::parse(&text).rules()[0].1.sharing.as_deref().copied()
    };
    let open = Sharing { on_partition: OnPartition::Open, ..Sharing::default() };
    for (fields, wanted) in [
        ("", None),
        ("scope: node, ", None),
        ("scope: cluster, ", Some(Sharing::default())),
        ("scope: cluster, cluster: {on_partition: open}, ", Some(open)),
        (
            "scope: cluster, cluster: {strict: true}, ",
            Some(Sharing { strict: true, ..Sharing::default() }),
        ),
    ] {
        assert_eq!(rule(fields), wanted, "{fields}");
        // Nothing is kept back of a bucket of requests.
        if !fields.contains("strict") {
            assert_eq!(of_requests(fields), wanted, "{fields}");
        }
    }
    // A rule by source with one token bucket is in a keyed table then: leases are of keys.
    let text = format!("descriptors:\n  - {{key: remote_address, scope: cluster, {LIMIT}}}\n");
    let file = parse(&text).unwrap();
    assert_eq!(file.rules.rules[0].terms.limits().unwrap().plain(), None);
    refused(&[
        (
            "descriptors:\n  - {key: vlan, rate_limit: {unit: second, requests_per_unit: 1, \
             scope: cluster}}\n"
                .into(),
            "2:66: \"scope\" is not supported: it is of all limits of a rule: write it beside \
             `rate_limit`",
        ),
        (
            "descriptors:\n  - {key: vlan, value: 7, scope: cluster, budget: b}\n".into(),
            "2:34: scope without rate_limit: the budget has one of its own; write it there",
        ),
    ]);
    refused_by_both(&[
        (
            format!("descriptors:\n  - {{key: vlan, cluster: {{}}, {LIMIT}}}\n"),
            "2:26: cluster without `scope: cluster`: write that, or remove the field",
        ),
        (
            "descriptors:\n  - {key: vlan, scope: cluster, rate_limit: {unlimited: true}}\n".into(),
            "2:24: scope beside unlimited: remove one of the two",
        ),
    ]);
}

#[test]
fn the_digest_is_of_the_rules_and_not_of_how_they_are_written() {
    let digest = |text: &str| parse(text).unwrap().rules.digest();
    let rule = |value: u32| format!("  - {{key: vlan, value: {value}, {LIMIT}}}\n");
    let one =
        format!("domain: a\n{}descriptors:\n{}{}", budget("scope: cluster"), rule(1), rule(2));
    let same = format!(
        "{}descriptors:\n{}{}",
        budget("scope: cluster, cluster: {sync: 200ms}"),
        rule(2),
        rule(1)
    );
    assert_eq!(digest(&one), digest(&same));
    for (from, to) in [
        ("scope: cluster", "scope: node"),
        ("scope: cluster", "scope: cluster, cluster: {share: 24%}"),
        ("value: 2", "value: 3"),
        ("name: b", "name: c"),
    ] {
        assert_ne!(digest(&one), digest(&one.replacen(from, to, 1)), "{to}");
    }
    // Equal on every machine and in every version: nodes compare it.
    assert_eq!(format!("{:016x}", digest(&one)), "faa04b6f5f4494e9");
}
