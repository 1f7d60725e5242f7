//! The trie and the ranks against a search that knows neither.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use limiter_common::compact::{compact_bucket_key, compact_key};
use limiter_common::wire::{FlagClass, TRIE_FIXED_BITS, TableKey, TrieValue};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::*;
use crate::compile::RuleError;
use crate::model::{Budget, Fact, Limits, Part, Rule, SOURCE_MASKS, Terms};

/// Packet, as far as these tables ask.
#[derive(Clone, Debug)]
struct Packet {
    source: IpAddr,
    destination: IpAddr,
    port: u16,
    flags: FlagClass,
    vlan: u16,
}

/// Addresses that share many prefixes.
fn any_address() -> impl Strategy<Value = IpAddr> {
    let near = (0u32..4).prop_map(|low| low << 7 | low);
    (any::<bool>(), near, 0u32..2).prop_map(|(v4, low, high)| {
        if v4 {
            IpAddr::V4(Ipv4Addr::from(high << 31 | low))
        } else {
            let bits = u128::from(low) << 60 | u128::from(high) << 127 | u128::from(high);
            IpAddr::V6(Ipv6Addr::from(bits))
        }
    })
}

fn any_net(most_v6: u8) -> impl Strategy<Value = IpNet> {
    (any_address(), 0u8..=32, prop_oneof![Just(0u8), 56u8..=72, Just(128)]).prop_map(
        move |(address, v4, v6)| {
            let length = if address.is_ipv4() { v4 } else { v6.min(most_v6) };
            IpNet::new(address, length).unwrap().trunc()
        },
    )
}

fn any_packet() -> impl Strategy<Value = Packet> {
    (any_address(), any_address(), 0u16..3, 0usize..2, 0u16..2).prop_filter_map(
        "one family",
        |(source, destination, port, flags, vlan)| {
            let flags = FlagClass::ALL[flags];
            (source.is_ipv4() == destination.is_ipv4()).then_some(Packet {
                source,
                destination,
                port,
                flags,
                vlan,
            })
        },
    )
}

/// Values for the keys, in the order of `KEYS`.
fn any_path() -> impl Strategy<Value = Vec<Part>> {
    let flags = of((0usize..2).prop_map(|class| FlagClass::ALL[class]));
    (of(any_net(64)), of(any_net(128)), of(0u16..3), flags, of(0u16..2)).prop_map(
        |(source, destination, port, flags, vlan)| {
            vec![
                Part::Source(SOURCE_MASKS, source),
                Part::Destination(destination),
                Part::Fact(Fact::DestinationPort, port.map(Into::into)),
                Part::Fact(Fact::TcpFlags, flags.map(|class| (class as u16).into())),
                Part::Fact(Fact::Vlan, vlan.map(Into::into)),
            ]
        },
    )
}

/// How much of a part matches: none if it does not, 0 without a value.
fn matched(part: &Part, packet: &Packet) -> Option<u32> {
    let net = |value: &Option<IpNet>, address: &IpAddr| match value {
        None => Some(0),
        Some(net) => net.contains(address).then(|| u32::from(net.prefix_len()) + 1),
    };
    let equal = |value: Option<crate::model::Values>, fact: u16| match value {
        None => Some(0),
        Some(values) => values.has(fact).then_some(1),
    };
    match part {
        Part::Source(_, value) => net(value, &packet.source),
        Part::Destination(value) => net(value, &packet.destination),
        Part::Fact(Fact::DestinationPort, value) => equal(*value, packet.port),
        Part::Fact(Fact::TcpFlags, value) => equal(*value, packet.flags as u16),
        Part::Fact(Fact::Vlan, value) => equal(*value, packet.vlan),
        _ => None,
    }
}

/// Compares key by key, in the order of the path.
fn naive(rules: &[Arc<Rule>], packet: &Packet) -> Option<usize> {
    rules
        .iter()
        .enumerate()
        .filter_map(|(index, rule)| {
            let digits: Option<Vec<u32>> =
                rule.path.parts.iter().map(|part| matched(part, packet)).collect();
            digits.map(|digits| (Reverse(digits), index))
        })
        .min()
        .map(|(_, index)| index)
}

fn words(address: IpAddr) -> [u64; 2] {
    bytemuck::cast(match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    })
}

/// As the program does it: a packet with other bits than all rules have is not in the table; of the
/// others every shape asks the trie, and the highest rank wins.
fn found(plan: &Plan, packet: &Packet) -> Option<u32> {
    let (table, shapes) = &plan.tables.tables[0];
    let version = if packet.source.is_ipv4() { 4 } else { 6 };
    let of_packet = TableKey {
        vlan: packet.vlan,
        destination_port: packet.port,
        flags: packet.flags as u8,
        version,
        ..TableKey::default()
    };
    let agreed = table.agreed.into_iter().zip(table.agreed_values);
    if of_packet.words().into_iter().zip(agreed).any(|(word, (bits, value))| word & bits != value) {
        return None;
    }
    let mut best = TrieValue::default();
    for (index, shape) in (0u32..).zip(shapes) {
        let mask = &shape.mask;
        let destination = words(packet.destination);
        let key = TableKey {
            table: index,
            vlan: packet.vlan & mask.vlan,
            destination_port: packet.port & mask.destination_port,
            flags: packet.flags as u8 & mask.flags,
            version: version & mask.version,
            destination: [
                destination[0] & mask.destination[0],
                destination[1] & mask.destination[1],
            ],
            source: words(packet.source),
            ..TableKey::default()
        };
        let longest = plan
            .tables
            .trie
            .iter()
            .filter(|(entry, length, _)| {
                let cut = |key: &TableKey| {
                    let bytes: [u8; 16] = bytemuck::cast(key.source);
                    let shift = 128 - (length - TRIE_FIXED_BITS);
                    u128::from_be_bytes(bytes).checked_shr(shift).unwrap_or(0)
                };
                let fixed = |key: &TableKey| TableKey { source: [0; 2], ..*key };
                fixed(entry) == fixed(&key) && cut(entry) == cut(&key)
            })
            .max_by_key(|(_, length, _)| *length);
        if let Some((_, _, value)) = longest
            && value.raw() > best.raw()
        {
            best = *value;
        }
    }
    (best.raw() != 0).then(|| best.slot())
}

/// The slot of a rule as the program finds it for a compact key: by the longest prefix in the trie
/// of sources; [`Slot::NONE`] for no rule, and none where the key of the packet is not compact.
fn found_compact(plan: &Plan, packet: &Packet) -> Option<u32> {
    let (table, _) = &plan.tables.tables[0];
    let version = if packet.source.is_ipv4() { 4 } else { 6 };
    let has = |bit| table.fields & bit != 0;
    let port = if has(field::DESTINATION_PORT) { packet.port } else { 0 };
    let flags = if has(field::TCP_FLAGS) { packet.flags as u8 } else { 0 };
    let vlan = if has(field::VLAN) { packet.vlan } else { 0 };
    let key = TableKey {
        table: table.id,
        version,
        flags,
        vlan,
        destination_port: port,
        ..TableKey::EMPTY
    };
    let key = if has(field::SOURCE) {
        TableKey { source: words(packet.source), ..key }
    } else {
        TableKey { destination: words(packet.destination), ..key }
    };
    let bucket_key = compact_bucket_key(table, &key)?;
    let agreed = table.agreed.into_iter().zip(table.agreed_values);
    if key.words().into_iter().zip(agreed).any(|(word, (bits, value))| word & bits != value) {
        return Some(Slot::NONE.index());
    }
    assert_eq!(compact_key(table, &bucket_key), Some(key));
    let whole = TriePrefix { length: 128, address: bucket_key.trie_key() };
    let around = plan.trie.iter().filter(|(prefix, _)| prefix.contains(&whole));
    let longest = around.max_by_key(|(prefix, _)| prefix.length);
    Some(longest.map_or(Slot::NONE.index(), |(_, slot)| *slot))
}

/// Rules by one address and one fact, and packets of a table that may be narrow.
fn any_compact() -> impl Strategy<Value = (Vec<Vec<Part>>, Direction, usize, Vec<Packet>)> {
    let rules = (any::<bool>(), any::<bool>()).prop_flat_map(|(by_source, by_port)| {
        let part = (of(any_net(64)), of(0u16..3), of(Just(FlagClass::Syn)));
        let parts = part.prop_map(move |(net, value, flags)| {
            let fact = if by_port { Fact::DestinationPort } else { Fact::Vlan };
            let source = Part::Source(SOURCE_MASKS, net);
            vec![
                if by_source { source } else { Part::Destination(net) },
                Part::Fact(fact, value.map(Into::into)),
                Part::Fact(Fact::TcpFlags, flags.map(|class| (class as u16).into())),
            ]
        });
        vec(parts, 1..6)
    });
    let direction = any_direction().prop_flat_map(|direction| {
        // Rules by source alone are in the source table, on the way in.
        let least = if direction == Direction::In { 2 } else { 1 };
        (Just(direction), least..=3usize)
    });
    let all = (rules, direction, vec(any_packet(), 1..40));
    all.prop_map(|(rules, (direction, keys), packets)| (rules, direction, keys, packets))
}

fn any_direction() -> impl Strategy<Value = Direction> {
    proptest::sample::select(Direction::NAMED.map(|(_, direction)| direction).to_vec())
}

thread_local! {
    /// Packets with compact keys that a rule was for, and those that none was for.
    static NARROW: std::cell::Cell<[u32; 2]> = const { std::cell::Cell::new([0; 2]) };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    fn a_compact_key_finds_the_rule_of_the_table((paths, direction, keys, packets) in any_compact()) {
        let mut set = RuleSet::default();
        let mut seen = BTreeSet::new();
        for mut parts in paths {
            parts.truncate(keys);
            let path = Path::of(parts).going(direction);
            if seen.insert(path.clone()) {
                set.rules.push(Arc::new(Rule::new(path, Terms::Unlimited)));
            }
        }
        let mut maps = Maps::default();
        // A rule on IPv6 sources around all names in the trie.
        let every = Part::Source(SOURCE_MASKS, Some("::/0".parse().unwrap()));
        set.rules.push(Arc::new(Rule::new(Path::of([every]), Terms::Unlimited)));
        let plan = maps.apply(&set);
        set.rules.pop();
        for packet in packets {
            let wanted = naive(&set.rules, &packet).map(|index| {
                let id = RuleId::new(&set.rules[index].path, &interface).unwrap();
                maps.installed.tables.rules[&id]
            });
            if let Some(found) = found_compact(&plan, &packet) {
                prop_assert_eq!(found, wanted.unwrap_or(Slot::NONE.index()), "{:?}", packet);
                let [with, without] = NARROW.get();
                let has = u32::from(wanted.is_some());
                NARROW.set([with + has, without + 1 - has]);
            }
        }
        prop_assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
    }
}

#[test]
fn a_compact_key_has_the_rule_of_its_table() {
    a_compact_key_finds_the_rule_of_the_table();
    let [with, without] = NARROW.get();
    assert!(with > 200 && without > 200, "{with} {without}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_most_specific_rule_is_found(
        paths in vec(any_path(), 1..12),
        order in Just(vec![0usize, 1, 2, 3, 4]).prop_shuffle(),
        keys in 1usize..=5,
        direction in any_direction(),
        packets in vec(any_packet(), 1..40),
    ) {
        let mut set = RuleSet::default();
        let mut seen = BTreeSet::new();
        for (parts, number) in paths.into_iter().zip(1u64..) {
            let kept: Vec<Part> =
                order.iter().take(keys).map(|index| parts[*index].clone()).collect();
            let path = Path::of(kept).going(direction);
            if path.selector().is_some() || !seen.insert(path.clone()) {
                continue;
            }
            let second = crate::Period::one(crate::Unit::Second);
            let rate = crate::model::Quota::new(Count::Packets, number, second).with_burst(1);
            set.rules.push(Arc::new(Rule::new(path, rate)));
        }
        prop_assume!(!set.rules.is_empty());
        let mut maps = Maps::default();
        let plan = match maps.plan(&set) {
            Err(PlanError::Compile(error)) if error.error == RuleError::TooManyShapes => {
                return Err(TestCaseError::reject("shapes"));
            }
            other => other.unwrap(),
        };
        maps.apply(&set);
        for packet in packets {
            let wanted = naive(&set.rules, &packet).map(|index| {
                let id = RuleId::new(&set.rules[index].path, &interface).unwrap();
                maps.installed.tables.rules[&id]
            });
            prop_assert_eq!(found(&plan, &packet), wanted, "{:?}", packet);
            if let Some(found) = found_compact(&plan, &packet) {
                prop_assert_eq!(found, wanted.unwrap_or(Slot::NONE.index()), "narrow {:?}", packet);
            }
        }
        prop_assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
    }
}

proptest! {
    /// Rules of one budget have one slot, so the key of a packet alone says which of them is meant.
    #[test]
    fn the_rulebook_names_the_rule_by_which_a_packet_is_charged(
        paths in vec(any_path(), 1..12),
        order in Just(vec![0usize, 1, 2, 3, 4]).prop_shuffle(),
        keys in 1usize..=5,
        direction in any_direction(),
        packets in vec(any_packet(), 1..40),
    ) {
        let (name, mut seen) = ("shared".to_owned(), BTreeSet::new());
        let day = crate::Period::one(crate::Unit::Day);
        let rate = crate::model::Quota::new(Count::Packets, 1, day);
        let budget = Budget { name: name.clone(), limits: Limits::new(rate.with_burst(1)) };
        let mut set = RuleSet { budgets: vec![budget], ..RuleSet::default() };
        for parts in paths {
            let kept: Vec<Part> =
                order.iter().take(keys).map(|index| parts[*index].clone()).collect();
            let path = Path::of(kept).going(direction);
            if seen.insert(path.clone()) {
                set.rules.push(Arc::new(Rule::new(path, Terms::Budget(name.clone()))));
            }
        }
        let mut maps = Maps::default();
        if let Err(PlanError::Compile(error)) = maps.plan(&set)
            && error.error == RuleError::TooManyShapes
        {
            return Err(TestCaseError::reject("shapes"));
        }
        let plan = maps.apply(&set);
        let book = Rulebook::new(&maps.installed, set.rules.iter().cloned(), &interface);
        let Some((slot, _)) = maps.installed.tables.budget(budget_tag(&name)) else {
            // No packet can find a rule, as where the two addresses are of different families.
            return Ok(());
        };
        let titles = maps.installed.titles(
            set.rules.iter().map(AsRef::as_ref),
            [("shared", budget_tag(&name))],
            &interface,
        );
        for packet in packets {
            let key = TableKey {
                vlan: packet.vlan,
                destination_port: packet.port,
                flags: packet.flags as u8,
                version: if packet.source.is_ipv4() { 4 } else { 6 },
                destination: words(packet.destination),
                source: words(packet.source),
                ..TableKey::EMPTY
            };
            let named = book.of_key(plan.tables.tables[0].0.id, &key, Slot::new(slot));
            let wanted = naive(&set.rules, &packet).map(|index| &set.rules[index]);
            prop_assert_eq!(named.map(|named| &named.rule), wanted, "{:?}", packet);
            let title = named.map(|named| titles[&named.number].rule.as_str());
            prop_assert_eq!(title, wanted.map(|_| "budget shared"));
        }
    }
}

#[test]
fn a_missing_value_loses_against_every_value() {
    let terms = Terms::Unlimited;
    let rule = |source: Option<&str>| {
        let source = Part::Source(SOURCE_MASKS, source.map(|net| net.parse().unwrap()));
        Rule::new(Path::of([source, Part::Fact(Fact::Vlan, None)]), terms.clone())
    };
    let keyed = [rule(None), rule(Some("::/0"))];
    let mut maps = Maps::default();
    let plan = maps.apply(&RuleSet::of(keyed.clone()));
    let packet = |source: &str| {
        let source: IpAddr = source.parse().unwrap();
        Packet { source, destination: source, port: 0, flags: FlagClass::Syn, vlan: 1 }
    };
    let slot =
        |rule: &Rule| maps.installed.tables.rules[&RuleId::new(&rule.path, &interface).unwrap()];
    assert_eq!(found(&plan, &packet("2001:db8::1")), Some(slot(&keyed[1])));
    assert_eq!(found(&plan, &packet("192.0.2.1")), Some(slot(&keyed[0])));
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}
