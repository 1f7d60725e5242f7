//! Rendered rule sets are read back, for every one that there can be.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use limiter_common::wire::{Evidence, Full, OnLoss};
use limiter_sharing::OnPartition;
use proptest::collection::{btree_map, vec};
use proptest::option::of;

use super::*;
use crate::model::Martians;
use crate::model::{
    Ban, Budget, Delay, Direction, Fact, Limits, Listing, Mark, Meter, Over, Part, Path, Quota,
    RateLimit, RuleLimit, SOURCE_MASKS, Share, Sharing, SourceMasks, Terms, Upper, Values,
};
use crate::{Environment, Installed};

fn any_rate(counts: &'static [Count]) -> impl Strategy<Value = RateLimit> {
    (0..counts.len(), 1u64.., any_period(), 1u64..).prop_map(|(count, rate, period, burst)| {
        Quota::new(counts[count], rate, period).with_burst(burst)
    })
}

fn any_period() -> impl Strategy<Value = Period> {
    (prop::sample::select(Unit::ALL.to_vec()), prop_oneof![Just(1), 1u64..]).prop_map(
        |(unit, multiplier)| {
            let multiplier = u32::try_from((multiplier - 1) % Period::most(unit) + 1).unwrap();
            Period { unit, multiplier }
        },
    )
}

const COUNTS: &[Count] = &[Count::Packets, Count::Bytes, Count::Syns, Count::Flows];

fn any_time(least: u64) -> impl Strategy<Value = Duration> {
    (least..60_000_000_000).prop_map(Duration::from_millis)
}

fn any_mark() -> impl Strategy<Value = Mark> {
    prop_oneof![(0u8..64).prop_map(Mark::Dscp), Just(Mark::Ecn)]
}

fn any_limit() -> impl Strategy<Value = RuleLimit> {
    let quota = || any_rate(COUNTS).prop_map(|rate| rate.quota());
    let backlog = (0u64..1 << 50).prop_map(Duration::from_nanos);
    let slots = prop_oneof![Just(2u8), Just(4), Just(8)];
    let meter =
        prop_oneof![
            any_rate(COUNTS).prop_map(Meter::TokenBucket),
            (quota(), backlog).prop_map(|(quota, backlog)| Meter::LeakyBucket { quota, backlog }),
            quota().prop_map(Meter::FixedWindow),
            quota().prop_map(Meter::SlidingLog),
            quota().prop_map(Meter::SlidingCounter),
            (quota(), slots, any::<bool>())
                .prop_map(|(quota, slots, strict)| Meter::SlidingSlots { quota, slots, strict }),
        ];
    let upper = (0usize..3, any_rate(COUNTS), of(any_mark()));
    (meter, of(upper)).prop_map(|(meter, upper)| {
        let Quota { count, .. } = meter.quota();
        let Some((kind, rate, mark)) = upper else {
            return RuleLimit::hard(meter);
        };
        let kinds: [fn(RateLimit) -> Upper; 3] = [Upper::Ceiling, Upper::Peak, Upper::Excess];
        let upper = kinds[kind](RateLimit { count, ..rate });
        RuleLimit { meter, upper: Some(upper), mark }
    })
}

// Names with everything that YAML or JSON could trip over, but for what no name may have.
fn any_name() -> impl Strategy<Value = String> {
    "[ -~äß€]{1,12}"
}

fn any_over() -> impl Strategy<Value = Over> {
    let times = (any_time(1_000), any_time(1_000), any_time(1_000));
    let ban =
        (times, 1u32..=65_535, any::<bool>()).prop_map(|((one, other, memory), strikes, none)| {
            Ban {
                first: one.min(other),
                longest: one.max(other),
                memory,
                strikes,
                evidence: if none { Evidence::None } else { Evidence::Established },
            }
        });
    let delay = (1u64..=2_000, any::<bool>())
        .prop_map(|(longest, ecn)| Delay { longest: Duration::from_millis(longest), ecn });
    prop_oneof![
        Just(Over::Drop),
        delay.prop_map(Over::Delay),
        Just(Over::Reject),
        any_mark().prop_map(Over::Mark),
        any_name().prop_map(Over::Class),
        any_name().prop_map(Over::Interface),
        any::<u32>().prop_map(Over::Cpu),
        ban.prop_map(|ban| Over::Ban(Box::new(ban))),
    ]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let full = prop_oneof![Just(Full::Share), Just(Full::Pass), Just(Full::Drop)];
    let on_loss = prop_oneof![Just(OnLoss::Keep), Just(OnLoss::Shadow)];
    let sharing = of(any_sharing().prop_map(Box::new));
    (vec(any_limit(), 1..5), any_over(), any::<bool>(), full, on_loss, sharing).prop_map(
        |(limits, over, shadow, full, on_loss, sharing)| Limits {
            limits: limits.into(),
            over,
            shadow,
            full,
            on_loss,
            sharing,
        },
    )
}

fn any_terms() -> impl Strategy<Value = Terms> {
    prop_oneof![
        Just(Terms::Unlimited),
        any_name().prop_map(Terms::Budget),
        any_limits().prop_map(Terms::Limits),
    ]
}

/// A rule that drops everything. It has keys.
fn any_block() -> impl Strategy<Value = Terms> {
    let on_loss = prop_oneof![Just(OnLoss::Keep), Just(OnLoss::Shadow)];
    let over = prop_oneof![Just(Over::Drop), Just(Over::Reject)];
    (over, any::<bool>(), on_loss).prop_map(|(over, shadow, on_loss)| {
        Limits { over, shadow, on_loss, ..Limits::new(Vec::new()) }.into()
    })
}

fn net(address: IpAddr, length: u8) -> IpNet {
    let most = if address.is_ipv4() { 32 } else { 128 };
    IpNet::new(address.to_canonical(), length.min(most)).unwrap().trunc()
}

/// A key whose value is a number, with every value that it may have.
fn any_fact() -> impl Strategy<Value = Part> {
    let values = |fact: Fact| {
        if let Some(most) = fact.most() {
            let read = move |value: u16| fact.read(&fact.text(value)).ok();
            return (0..=most).prop_filter_map("a value", read).boxed();
        }
        let named: Vec<_> = fact.names().iter().map(|(_, value)| u16::from(*value)).collect();
        proptest::sample::select(named).boxed()
    };
    let facts = proptest::sample::select(Fact::ALL.to_vec());
    facts.prop_flat_map(move |fact| {
        of((values(fact), of(values(fact)))).prop_map(move |value| {
            let values = value.map(|(one, other)| match other.filter(|_| fact.has_ranges()) {
                Some(other) => Values::range(one.min(other), one.max(other)).unwrap(),
                None => one.into(),
            });
            Part::Fact(fact, values)
        })
    })
}

fn any_part() -> impl Strategy<Value = Part> {
    // Not within IPv4-mapped addresses, and of one family, so that paths stay possible.
    let v6 = any::<[u8; 15]>().prop_map(|bytes| {
        let mut address = [0x20; 16];
        address[1..].copy_from_slice(&bytes);
        IpAddr::from(address)
    });
    let source = (of(v6.clone()), of(1u8..=32), 1u8..=128, any::<bool>(), any::<u8>());
    prop_oneof![
        source.prop_map(|(address, v4, v6, default, length)| {
            let masks = if default { SOURCE_MASKS } else { SourceMasks { v4, v6: Some(v6) } };
            let length = length.min(masks.v6.unwrap_or(0));
            Part::Source(masks, address.map(|address| net(address, length)))
        }),
        (of(v6), 0u8..=128).prop_map(|(address, length)| {
            Part::Destination(address.map(|address| net(address, length)))
        }),
        any_fact(),
        of("[a-z0-9.]{1,15}").prop_map(Part::Interface),
        (of(any::<[u8; 4]>()), 0u8..=32).prop_map(|(address, length)| {
            Part::Inner(address.map(|address| net(address.into(), length)))
        }),
    ]
}

pub(super) fn any_direction() -> impl Strategy<Value = Direction> {
    proptest::sample::select(Direction::NAMED.map(|(_, direction)| direction).to_vec())
}

fn any_keyed() -> impl Strategy<Value = Rule> {
    let parts = (vec(any_part(), 0..6), any_direction()).prop_map(|(mut parts, direction)| {
        parts.retain(|part| !direction.has_out() || !matches!(part, Part::Inner(_)));
        let mut path: Vec<Part> = Vec::new();
        for part in parts {
            let beside = |other: &Part| other.excludes(&part) || part.excludes(other);
            if !path.iter().any(|other| other.same_key(&part) || beside(other)) {
                path.push(part);
            }
        }
        Path::of(path).going(direction)
    });
    let terms = (any_terms(), of(any_block()));
    let terms = terms.prop_map(|(terms, block)| block.unwrap_or(terms));
    (parts, of(any_name()), of(any_name()), terms).prop_map(|(path, name, label, terms)| {
        let is_block = terms.limits().is_some_and(|limits| limits.limits.is_empty());
        if is_block && path.parts.is_empty() {
            let label = Some("x".into());
            return Rule { name: None, label, path, terms: Terms::Unlimited };
        }
        let name = name.filter(|_| !is_block);
        let label =
            if path.parts.is_empty() { Some(label.unwrap_or_default() + "x") } else { label };
        // A budget has its own name.
        let name = name.filter(|_| !matches!(terms, Terms::Budget(_)));
        let (name, label) = (name.map(String::into_boxed_str), label.map(String::into_boxed_str));
        Rule { name, label, path, terms }
    })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let selector = prop_oneof![Just(Selector::Every), any::<IpAddr>().prop_map(Selector::address)];
    (of(any_name()), selector, any_direction(), any_terms()).prop_map(
        |(name, selector, direction, terms)| {
            let name = name.filter(|_| !matches!(terms, Terms::Budget(_)));
            let name = name.map(String::into_boxed_str);
            let path = Path::of_source(&selector).going(direction);
            Rule { name, ..Rule::new(path, terms) }
        },
    )
}

fn any_sharing() -> impl Strategy<Value = Sharing> {
    let share = || (0u16..=1000).prop_map(|thousandths| Share::new(thousandths).unwrap());
    let on_partition = proptest::sample::select(OnPartition::NAMED.map(|(_, at)| at).to_vec());
    let shares = (share(), share(), share());
    (50_000u64..=10_000_000, shares, on_partition, any::<bool>()).prop_map(
        |(sync, (share, share_of_burst, lease_cap), on_partition, strict)| Sharing {
            sync: Duration::from_micros(sync),
            share,
            share_of_burst,
            lease_cap,
            on_partition,
            strict: strict && on_partition != OnPartition::Open,
        },
    )
}

fn any_listed() -> impl Strategy<Value = Selector> {
    let v4 = (any::<u32>(), 3u8..=32)
        .prop_map(|(bits, length)| IpNet::new(IpAddr::V4(bits.into()), length).unwrap().trunc());
    let v6 = (any::<u128>(), 4u8..=64)
        .prop_map(|(bits, length)| IpNet::new(IpAddr::V6(bits.into()), length).unwrap().trunc());
    prop_oneof![v4, v6].prop_map(Selector::Prefix)
}

fn any_listing() -> impl Strategy<Value = Listing> {
    let until = of(0u64..253_402_300_799);
    (any::<bool>(), of(any_name()), until).prop_map(|(allow, reason, until)| {
        let reason =
            reason.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).map(Into::into);
        Listing { allow, reason, until }
    })
}

pub(super) fn any_set() -> impl Strategy<Value = RuleSet> {
    let budget = (any_name(), any_limits()).prop_map(|(name, limits)| Budget {
        name,
        limits: Limits { full: Full::default(), ..limits },
    });
    let own = || of(any_rate(&[Count::Packets]));
    let lists = (vec(any_rule(), 0..3), vec(any_keyed(), 0..4), vec(budget, 0..3));
    let listed = btree_map(any_listed(), any_listing(), 0..4);
    let parts = (lists, own(), own(), of(any::<bool>()), listed);
    parts.prop_map(|((mut rules, mut keyed, mut budgets), replies, bans, martians, lists)| {
        let mut seen = std::collections::BTreeSet::new();
        rules.append(&mut keyed);
        rules.retain(|rule| seen.insert(Subject::Rule(rule.path.clone())));
        budgets.retain(|budget| seen.insert(Subject::Budget(budget.name.clone())));
        let martians = martians.map(|drop| if drop { Martians::Drop } else { Martians::Charge });
        RuleSet { budgets, replies, bans, martians, lists, ..RuleSet::of(rules) }
    })
}

proptest! {
    #[test]
    fn what_is_rendered_is_read_back(set in any_set()) {
        let text = render("cli", &set, 1522).unwrap();
        let file = RuleFile::parse("edits.json", text.as_bytes(), 1522);
        let file = file.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(file.rules, set);
    }
}

/// State that would be in force.
fn planned(set: &RuleSet) -> Option<Installed> {
    let environment = Environment {
        max_frame: 1522,
        interface_index: &|name| name.bytes().next().map(u32::from),
        cpus: u32::MAX,
        cluster: Some(3),
        in_at_tc: None,
    };
    Installed::default().plan(set, 1, 1024, &environment).map(|plan| plan.installed).ok()
}

proptest! {
    /// Whatever the interfaces are that it is read for.
    #[test]
    fn what_is_written_exactly_compiles_to_the_same(set in any_set(), max_frame in 1522u64..131_072) {
        let head = RuleSet { rules: Vec::new(), ..set.clone() };
        let mut written = ExactFile::begin("x", Some("all"), &head).unwrap();
        set.rules.iter().for_each(|rule| written.rule(rule).unwrap());
        let text = written.end();
        // In blocks, no flow style.
        let flow = |line: &str| line.trim_start_matches([' ', '-']).starts_with(['{', '[']);
        prop_assert!(!text.lines().any(flow), "{text}");
        let file = RuleFile::parse("export.yaml", text.as_bytes(), max_frame);
        let file = file.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(planned(&file.rules), planned(&set));
        prop_assert_eq!(file.rules, set);
    }

    /// Lines distinguish two rule sets, so that a comparison of lines is one of rule sets.
    #[test]
    fn lines_are_the_same_only_for_the_same(one in any_terms(), other in any_terms()) {
        use crate::model::terms_text;
        prop_assert_eq!(terms_text(&one) == terms_text(&other), one == other);
    }
}

#[test]
fn every_field_shows_in_the_line() {
    use crate::model::terms_text;
    let base = "{key: vlan, rate_limit: {unit: second, requests_per_unit: 5, burst: 7}}";
    let variants = [
        ("", ""),
        ("unit: second", "unit: minute"),
        ("requests_per_unit: 5", "requests_per_unit: 6"),
        ("burst: 7", "burst: 8"),
        ("burst: 7", "burst: 7, count: bytes"),
        ("burst: 7", "burst: 7, count: syns"),
        ("burst: 7", "algorithm: leaky_bucket"),
        ("burst: 7", "algorithm: leaky_bucket, backlog: 3ms"),
        ("burst: 7", "algorithm: sliding_slots, slots: 8"),
        ("burst: 7", "algorithm: sliding_slots, slots: 8, strict: true"),
        ("burst: 7", "burst: 7, ceiling: {unit: second, requests_per_unit: 50}"),
        ("burst: 7", "burst: 7, excess: {unit: second, requests_per_unit: 50}"),
        ("burst: 7", "burst: 7, ceiling: {unit: second, requests_per_unit: 50, burst: 51}"),
        ("burst: 7", "burst: 7, ceiling: {unit: second, requests_per_unit: 50}, mark: {dscp: 8}"),
        ("vlan,", "vlan, shadow_mode: true,"),
        ("vlan,", "vlan, on_full: drop,"),
        ("vlan,", "vlan, action: reject,"),
        ("vlan,", "vlan, action: {cpu: 1},"),
        ("vlan,", "vlan, action: {class: a},"),
        ("vlan,", "vlan, action: {interface: a},"),
        ("vlan,", "vlan, action: {ban: {}},"),
        ("vlan,", "vlan, action: {ban: {first: 2min}},"),
        ("vlan,", "vlan, action: {ban: {memory: 2h}},"),
        ("vlan,", "vlan, action: {ban: {strikes: 3}},"),
        ("vlan,", "vlan, action: {ban: {evidence: none}},"),
    ];
    let mut lines = std::collections::BTreeSet::new();
    for (from, to) in variants {
        let text = format!("descriptors: [{}]\n", base.replacen(from, to, 1));
        let file = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let line = terms_text(&file.rules.rules[0].terms);
        assert!(lines.insert(line.clone()), "{to}: {line}");
    }
}

#[test]
fn every_field_of_sharing_shows_in_the_line() {
    let base = "scope: cluster, cluster: {sync: 300ms}";
    let variants = [
        ("", ""),
        ("scope: cluster, cluster: {sync: 300ms}", "scope: node"),
        ("300ms", "301ms"),
        ("300ms", "300ms, share: 1%"),
        ("300ms", "300ms, share_of_burst: 1%"),
        ("300ms", "300ms, lease_cap: 1%"),
        ("300ms", "300ms, on_partition: open"),
        ("300ms", "300ms, strict: true"),
    ];
    let mut lines = std::collections::BTreeSet::new();
    for (from, to) in variants {
        let fields = base.replacen(from, to, 1);
        let text = format!(
            "budgets: [{{name: b, {fields}, rate_limit: {{unit: second, requests_per_unit: 5}}}}]\n"
        );
        let file = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let line = file.rules.lines()[&Subject::Budget("b".into())].clone();
        assert!(lines.insert(line.clone()), "{to}: {line}");
    }
}
