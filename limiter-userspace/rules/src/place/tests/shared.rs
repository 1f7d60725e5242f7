//! Budgets that nodes share.

use std::sync::Arc;

use limiter_common::wire::lease_of_budget;
use limiter_sharing::window::WindowKind;
use limiter_sharing::{Shared, SharedLimit, SharedTerms};

use super::*;
use crate::Unit;
use crate::compile::display_rate;
use crate::model::Quota;

const SECOND: &str = "{unit: second, requests_per_unit: 1000}";

fn set(limits: &str, fields: &str) -> RuleSet {
    parse(&format!(
        "budgets:
  - {{name: first, rate_limit: {{unit: second, requests_per_unit: 5}}}}
  - {{name: b, rate_limits: [{limits}], {fields}}}
descriptors:
  - {{key: vlan, value: 6, budget: first}}
  - {{key: vlan, value: 7, budget: b}}
"
    ))
}

fn shared(limits: &str, cluster: &str) -> RuleSet {
    set(limits, &format!("scope: cluster, cluster: {{{cluster}}}"))
}

impl Maps {
    fn among(nodes: u64) -> Self {
        Self { cluster: Some(nodes), ..Self::default() }
    }

    fn budget(&self, name: &str) -> Record {
        *self.installed.tables.budget(budget_tag(name)).unwrap().1
    }
}

fn bucket(shared: &Shared) -> SharedLimit {
    match shared.terms {
        SharedTerms::Bucket(limit) => limit,
        SharedTerms::Window { .. } => panic!("{shared:?}"),
    }
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.shared.budgets.iter().map(|shared| &*shared.name).collect()
}

fn refused(limits: &str, cluster: &str) -> String {
    // Nodes come and go: the number of them decides nothing, and neither does a missing cluster.
    let set = shared(limits, cluster);
    let errors: Vec<String> = [None, Some(1), Some(3), Some(65_535)]
        .map(|cluster| Maps { cluster, ..Maps::default() }.plan(&set).unwrap_err().to_string())
        .into();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors[0].clone()
}

#[test]
fn a_shared_bucket_is_this_node_s_share_without_a_lease() {
    let mut maps = Maps::among(4);
    let plan = maps.apply(&shared(SECOND, ""));
    let record = maps.budget("b");
    assert_eq!((record.leased, record.closed, record.count), (1, 0, 1));
    // A quarter of the rate and a tenth of the burst, over four nodes.
    let limit = record.limits[0].rate();
    let ticks = |every_nanos: u64| every_nanos << limiter_common::time::TICK_BITS;
    assert_eq!((limit.increment, limit.shift), (ticks(16_000_000), 0));
    assert_eq!(limit.tolerance, 25 * ticks(16_000_000));
    let [only] = plan.shared.budgets.as_slice() else { panic!("{:?}", plan.shared) };
    assert_eq!(&*only.name, "0:packets:bucket:b");
    assert_eq!(only.lease, lease_of_budget(record.budget - 1, 0));
    let terms = bucket(only);
    let settings = terms.settings();
    assert_eq!((settings.rate.units(), settings.rate.micros()), (1, 1000));
    assert_eq!((settings.burst, settings.largest, settings.nodes), (1000, 1, 4));
    assert!(settings.always && !settings.strict);
    assert_eq!(terms.cold().unwrap().1, 25);
    // The other budget is its own.
    let other = maps.budget("first");
    assert_eq!((other.leased, other.closed), (0, 0));
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}

#[test]
fn without_a_cluster_it_is_a_limit_of_this_node_alone() {
    let mut maps = Maps::default();
    let plan = maps.apply(&shared(SECOND, "on_partition: closed"));
    let mut alone = Maps::default();
    alone.apply(&set(SECOND, "scope: node"));
    assert_eq!(plan.shared.budgets, []);
    assert_eq!(maps.budget("b"), alone.budget("b"));
    // And it goes on with its bucket when there is one, at the whole rate over all of them.
    maps.cluster = Some(2);
    let before = maps.budget("b");
    maps.apply(&shared(SECOND, ""));
    assert_eq!(maps.budget("b").budget, before.budget);
    assert_eq!(maps.budget("b").leased, 1);
}

#[test]
fn a_partition_is_shared_open_or_closed() {
    let both = format!("{SECOND}, {{unit: hour, requests_per_unit: 90, algorithm: fixed_window}}");
    let of = |cluster: &str, nodes: u64| {
        let mut maps = Maps::among(nodes);
        maps.apply(&shared(&both, cluster));
        maps.budget("b")
    };
    let mut alone = Maps::default();
    alone.apply(&set(&both, "scope: node"));
    let whole = alone.budget("b").limits;
    let share = of("", 4);
    assert_eq!((share.leased, share.closed), (0b11, 0));
    assert_eq!(share.limits[1].window().limit, 22, "90 over four nodes");
    assert_eq!(share.limits[1].first, 1);
    let open = of("on_partition: open", 4);
    assert_eq!((open.leased, open.closed, open.limits), (0b11, 0, whole));
    let closed = of("on_partition: closed", 4);
    assert_eq!((closed.leased, closed.closed), (0b11, 0b11));
    // A share that holds no packet is none: of the burst with 200 nodes, of the window with 91.
    assert_eq!(of("", 90).closed, 0);
    assert_eq!(of("", 91).closed, 0b10);
    assert_eq!(of("", 100).closed, 0b10);
    assert_eq!(of("", 101).closed, 0b11);
    assert_eq!(of("share: 0%", 4).closed, 0b01);
}

#[test]
fn a_key_without_leases_has_a_share_of_a_rate_and_none_of_a_window() {
    let both = format!("{SECOND}, {{unit: hour, requests_per_unit: 90, algorithm: fixed_window}}");
    let keyed = |limits: &str, cluster: &str| {
        parse(&format!(
            "descriptors: [{{key: vlan, rate_limits: [{limits}], scope: cluster, \
             cluster: {{{cluster}}}}}]"
        ))
    };
    let of = |limits: &str, cluster: &str| {
        let (set, mut maps) = (keyed(limits, cluster), Maps::among(3));
        maps.apply(&set);
        let record = maps.record(&set, "vlan");
        (record.leased, record.closed)
    };
    assert_eq!(of(&both, ""), (0b11, 0b10_0000));
    assert_eq!(of(&both, "on_partition: closed"), (0b11, 0b11_0011));
    assert_eq!(of(&both, "share: 0%"), (0b11, 0b11_0001));
    let hour = "{unit: hour, requests_per_unit: 90, algorithm: fixed_window}";
    assert_eq!(of(hour, "on_partition: open"), (0b1, 0b1_0000));
    let error = Maps::among(3).plan(&keyed(SECOND, "on_partition: open")).unwrap_err().to_string();
    assert!(error.contains("each node would give every key the whole limit"), "{error}");
}

#[test]
fn every_algorithm_that_nodes_share_has_its_numbers() {
    let mut maps = Maps::among(2);
    let limits = "{unit: second, requests_per_unit: 1000000, count: bytes, burst: 500000}, {unit: \
                  second, requests_per_unit: 100, count: syns, algorithm: leaky_bucket, backlog: \
                  1s}, {unit: minute, requests_per_unit: 20, count: flows, algorithm: \
                  sliding_log}, {unit: hour, unit_multiplier: 2, requests_per_unit: 100, \
                  algorithm: sliding_counter}";
    let plan = maps.apply(&shared(limits, "sync: 100ms, share: 50%, share_of_burst: 50%"));
    assert_eq!(
        names(&plan),
        ["0:bytes:bucket:b", "1:syns:bucket:b", "2:flows:log_60s:b", "3:packets:counter_7200s:b"]
    );
    let leases: Vec<u32> = plan.shared.budgets.iter().map(|shared| shared.lease).collect();
    let index = maps.budget("b").budget - 1;
    assert_eq!(leases, [0, 1, 2, 3].map(|place| lease_of_budget(index, place)));
    assert_eq!(bucket(&plan.shared.budgets[0]).settings().largest, 1522);
    // A leaky bucket passes what its backlog holds, and the packet on its way.
    let leaky = bucket(&plan.shared.budgets[1]);
    assert_eq!((leaky.settings().burst, leaky.cold().unwrap().1), (101, 25));
    let spec = maps.budget("b").limits[1];
    assert_eq!(spec.algorithm(), Algorithm::LeakyBucket);
    assert_eq!(spec.rate().tolerance, 24 * spec.rate().increment);
    let SharedTerms::Window { window, sync } = plan.shared.budgets[2].terms else { panic!() };
    assert_eq!((window.kind, window.length, sync), (WindowKind::SlidingLog, 60_000_000, 100_000));
    assert_eq!((window.quota, window.largest, window.life), (20, 1, 400_000));
    let record = maps.budget("b");
    let words: Vec<_> = record.limits.iter().map(|spec| (spec.first, spec.words)).collect();
    assert_eq!(words, [(0, 1), (1, 1), (2, 11), (13, 2)], "a log of ten, half of it");
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}

/// A lease in one unit is not used in another.
#[test]
fn a_lease_has_one_meaning_for_its_time() {
    let packets = |rate: u32| format!("{{unit: second, requests_per_unit: {rate}, burst: 9000}}");
    let bytes = "{unit: second, requests_per_unit: 9000, count: bytes}";
    let hour = "{unit: hour, requests_per_unit: 9000, algorithm: fixed_window}";
    let two_hours =
        "{unit: hour, unit_multiplier: 2, requests_per_unit: 9000, algorithm: fixed_window}";
    let leaky = "{unit: second, requests_per_unit: 100, algorithm: leaky_bucket, backlog: 5s}";
    let mut maps = Maps::among(3);
    let apply = |maps: &mut Maps, limits: &str| {
        let (number, index) = maps
            .installed
            .tables
            .budget(budget_tag("b"))
            .map_or((0, 0), |(_, at)| (at.rule, at.budget));
        let plan = maps.apply(&shared(limits, ""));
        let record = maps.budget("b");
        assert!(number == 0 || record.rule == number, "its counters go on");
        assert_eq!(plan.shared.budgets[0].lease, lease_of_budget(record.budget - 1, 0));
        let moved = index != 0 && record.budget != index;
        let begun = plan.tables.begun_budgets.contains(&(record.budget - 1));
        assert_eq!(begun, index == 0 || moved, "another one begins with an empty state");
        // Packets under way read the one before.
        assert_eq!(maps.installed.tables.retired.budgets.contains(&index.wrapping_sub(1)), moved);
        (moved, Arc::clone(&plan.shared.budgets[0].name))
    };
    assert_eq!(apply(&mut maps, &packets(1000)), (false, "0:packets:bucket:b".into()));
    assert_eq!(apply(&mut maps, &packets(2000)), (false, "0:packets:bucket:b".into()));
    assert_eq!(apply(&mut maps, leaky), (false, "0:packets:bucket:b".into()));
    assert_eq!(apply(&mut maps, bytes), (true, "0:bytes:bucket:b".into()));
    // A daemon that comes back knows it from the maps.
    maps.installed = maps.adopted();
    assert_eq!(apply(&mut maps, &packets(1000)), (true, "0:packets:bucket:b".into()));
    assert_eq!(apply(&mut maps, hour), (true, "0:packets:fixed_3600s:b".into()));
    assert_eq!(apply(&mut maps, two_hours), (true, "0:packets:fixed_7200s:b".into()));
    let both = format!("{two_hours}, {bytes}");
    assert_eq!(apply(&mut maps, &both), (false, "0:packets:fixed_7200s:b".into()));
    let turned = format!("{bytes}, {two_hours}");
    assert_eq!(apply(&mut maps, &turned), (true, "0:bytes:bucket:b".into()));
    // Another number of nodes changes neither name nor lease.
    maps.cluster = Some(7);
    assert_eq!(apply(&mut maps, &turned), (false, "0:bytes:bucket:b".into()));
}

#[test]
fn limits_that_nodes_cannot_share_are_refused_with_a_remedy() {
    let of = |fields: &str| format!("{{unit: second, requests_per_unit: 1000, {fields}}}");
    let table = [
        (
            of("burst: 399"),
            "",
            "budget b: a burst of 399 packets is too small for nodes to share: it has to hold two \
             sync periods of the rate and the largest packet, and where strict the shares, too: \
             give at least 400, or a shorter sync",
        ),
        (
            of("burst: 1000"),
            "sync: 1s",
            "budget b: a burst of 1000 packets is too small for nodes to share: it has to hold \
             two sync periods of the rate and the largest packet, and where strict the shares, \
             too: give at least 2000, or a shorter sync",
        ),
        (of("burst: 400"), "share: 0%, share_of_burst: 20%, strict: true", ""),
        (
            of("burst: 400"),
            "share: 1%, share_of_burst: 20%, strict: true",
            "budget b: a burst of 400 packets is too small for nodes to share: it has to hold two \
             sync periods of the rate and the largest packet, and where strict the shares, too: \
             give at least 494, or a shorter sync",
        ),
        (
            of("algorithm: leaky_bucket, backlog: 300ms"),
            "",
            "budget b: the backlog of 1000/s is too short for nodes to share: it has to hold two \
             sync periods, and where strict the shares, too: give at least 399ms, or a shorter \
             sync",
        ),
        (
            of("burst: 3000"),
            "share: 100%, strict: true",
            "budget b: strict with a share of 100% leaves nothing to lease: give at most 99.9%",
        ),
        (
            of("algorithm: fixed_window"),
            "",
            "budget b: 1000/s is shorter than the minute that a window of nodes has: use a token \
             bucket",
        ),
        (
            "{unit: second, unit_multiplier: 59, requests_per_unit: 9, algorithm: sliding_log}"
                .into(),
            "",
            "budget b: 9/59s is shorter than the minute that a window of nodes has: use a token \
             bucket",
        ),
        (
            "{unit: day, unit_multiplier: 51, requests_per_unit: 9, algorithm: fixed_window}"
                .into(),
            "",
            "budget b: 9/51day is longer than the 50 days that a window of nodes has at most: use \
             a shorter one",
        ),
        (
            "{unit: hour, requests_per_unit: 9, algorithm: fixed_window}".into(),
            "strict: true",
            "budget b: 9/hour is a window, which has no share to keep back, so a partition adds \
             to it: write `on_partition: closed` beside strict, or remove strict",
        ),
        (
            of("algorithm: sliding_slots"),
            "",
            "budget b: sliding_slots cannot be shared by nodes: use token_bucket, or \
             sliding_counter of a minute or longer, or remove `scope: cluster`",
        ),
        (
            of("excess: {unit: second, requests_per_unit: 5}"),
            "",
            "budget b: excess makes a limit soft, which nodes cannot share: remove it, or `scope: \
             cluster`",
        ),
        (
            "{unit: day, unit_multiplier: 51, requests_per_unit: 1}".into(),
            "",
            "budget b: 1/51day cannot be shared by nodes: give at least one in 50 days, and less \
             than 2^42",
        ),
    ];
    for (limits, cluster, error) in table {
        if error.is_empty() {
            Maps::among(3).apply(&shared(&limits, cluster));
        } else {
            assert_eq!(refused(&limits, cluster), error, "{limits} {cluster}");
        }
    }
    // Of several, the one is named.
    let several =
        format!("{SECOND}, {{unit: minute, requests_per_unit: 9, algorithm: sliding_slots}}");
    assert!(refused(&several, "").starts_with("budget b, limit 2: sliding_slots cannot be"));
}

/// The least burst that an error names is enough, and with one unit less it is too small.
#[test]
fn the_burst_that_is_asked_for_is_enough() {
    for (share, share_of_burst) in [(0, 0), (250, 100), (10, 900), (999, 1), (500, 500), (1, 999)] {
        for sync in ["50ms", "200ms", "10s"] {
            let cluster = format!(
                "sync: {sync}, share: {}.{}%, share_of_burst: {}.{}%, strict: true",
                share / 10,
                share % 10,
                share_of_burst / 10,
                share_of_burst % 10
            );
            let of =
                |burst: u64| format!("{{unit: second, requests_per_unit: 777, burst: {burst}}}");
            let error = refused(&of(1), &cluster);
            let least = error.split("give at least ").nth(1).unwrap().split(',').next().unwrap();
            let least: u64 = least.parse().unwrap();
            for nodes in [1, 2, 3, 10, 1000, 65_535] {
                Maps::among(nodes).apply(&shared(&of(least), &cluster));
            }
            refused(&of(least - 1), &cluster);
        }
    }
}

/// A file for all nodes, whatever of it the program can hold on one of many.
#[test]
fn a_share_that_is_too_slow_is_none() {
    let slow = "{unit: hour, requests_per_unit: 100000, count: bytes, burst: 1000000000}";
    let rate = Quota::new(Count::Bytes, 100_000, crate::Period::one(Unit::Hour)).with_burst(1);
    let mut maps = Maps::among(1);
    maps.apply(&shared(slow, ""));
    assert_eq!(maps.budget("b").closed, 0, "{}", display_rate(&rate));
    let mut many = Maps::among(10_000);
    many.apply(&shared(slow, ""));
    assert_eq!((many.budget("b").leased, many.budget("b").closed), (1, 1));
}
