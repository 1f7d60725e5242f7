//! The sentences of `limiter check` against the program's decision: for random rules and packets,
//! they are read back, and what they say must be so. And what is said of packets that no rule can
//! meet.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]

mod claim;
mod packet;
mod rules;

use std::collections::BTreeMap;

use claim::{Bound, Claim, What};
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_model::{Framing, Model, Packet as Received};
use limiter_rules::model::{budget_sentence, rule_sentence};
use limiter_rules::{Environment, RuleFile, RuleSet};
use packet::{Packet, packet};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000_000 * SECOND;

fn config() -> ProptestConfig {
    let persistence = FileFailurePersistence::Direct("tests/sentences.proptest-regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(persistence)),
        max_global_rejects: 1_000_000,
        cases: 64,
        ..ProptestConfig::default()
    }
}

/// The rules of a file in force; none if they are refused.
fn in_force(text: &str) -> Option<(RuleSet, Model)> {
    let rules = RuleFile::parse("r.yaml", text.as_bytes(), 1522).ok()?.rules;
    let model = of(&rules)?;
    Some((rules, model))
}

fn of(rules: &RuleSet) -> Option<Model> {
    let mut model = Model::with_room(512, 512, 7);
    let index = |name: &str| match name {
        "eth0" => Some(1),
        "eth1" => Some(2),
        _ => None,
    };
    let environment = Environment {
        max_frame: 1522,
        interface_index: &index,
        cpus: 4,
        cluster: None,
        in_at_tc: Some(false),
    };
    let generation = model.generation() + 1;
    let plan = model.installed().plan(rules, generation, 64, &environment).ok()?;
    model.commit(plan, Ticks::from_nanos(START));
    Some(model)
}

fn passes(model: &mut Model, packet: &Packet, now: u64) -> bool {
    let frame = packet.frame();
    let length = u64::try_from(frame.len()).unwrap();
    let now = Ticks::from_nanos(now);
    let packet = Received::received(Framing::Ethernet, &frame, length, packet.interface);
    let outcome = model.judge_packet(&packet, now);
    outcome.reason.verdict() == Verdict::Pass
}

/// Sentences of a set, read back; those of rules, in their order, and of the budget.
struct Claims<'a> {
    set: &'a RuleSet,
    rules: Vec<Claim>,
    budget: What,
}

impl<'a> Claims<'a> {
    fn of(set: &'a RuleSet) -> Self {
        let rules = set.rules.iter().map(|rule| Claim::read(&rule_sentence(rule, set))).collect();
        let budget = budget_sentence(&set.budgets[0]);
        let start = "budget shared, all that is charged to it together: ";
        let whole = format!("all packets together: {}", budget.strip_prefix(start).unwrap());
        Self { set, rules, budget: Claim::read(&whole).what }
    }

    /// The bucket of a packet by the sentence of a rule; none if it is about others.
    fn bucket(&self, at: usize, packet: &Packet) -> Option<Vec<String>> {
        let who = &self.rules[at].who;
        let bucket = who.bucket(packet)?;
        let path = &self.set.rules[at].path;
        let taken = (0..self.rules.len()).any(|other| {
            other != at
                && path.is_in_table_of(&self.set.rules[other].path)
                && self.rules[other].who.bucket(packet).is_some()
        });
        (!who.other || !taken).then_some(bucket)
    }
}

/// Passed packets of a bucket, with their times.
type Passed = BTreeMap<Vec<String>, Vec<(u64, Packet)>>;

/// No more than the bound in any time as long as its own.
fn holds(bound: &Bound, passed: &[(u64, Packet)]) -> Result<(), TestCaseError> {
    for (first, (begin, _)) in passed.iter().enumerate() {
        let within = || passed[first..].iter().take_while(|(at, _)| *at < begin + bound.nanos);
        let units: u64 = within().map(|(_, packet)| bound.units(packet)).sum();
        let last = within().last().map_or(0, |(_, packet)| bound.units(packet));
        let most = bound.most + if bound.one_more { last } else { 0 };
        prop_assert!(units <= most, "{units} pass, {bound:?}");
    }
    Ok(())
}

/// Times between two packets, and how many of the second there are.
fn traffic() -> impl Strategy<Value = Vec<(u64, Packet, u8)>> {
    let gap = prop_oneof![
        3 => Just(0u64),
        3 => 0..SECOND,
        2 => 0..20 * SECOND,
        1 => 0..4_000 * SECOND,
    ];
    prop::collection::vec((gap, packet(), 1u8..40), 1..40)
}

/// Packets that differ from one in a single fact, which another one has. All are of one size, as a
/// smaller one could find room where the other one finds none.
fn varied(one: &Packet, other: &Packet) -> Vec<Packet> {
    let mut all = vec![
        Packet { source_port: other.source_port, ..*one },
        Packet { destination_port: other.destination_port, ..*one },
        Packet { flags: other.flags, ..*one },
        Packet { icmp: other.icmp, ..*one },
        Packet { ttl: other.ttl, ..*one },
        Packet { dscp: other.dscp, ..*one },
        Packet { interface: other.interface, ..*one },
        Packet { vlan: one.vlan.and(other.vlan), ..*one },
    ];
    if one.source.is_ipv4() == other.source.is_ipv4() {
        all.push(Packet { source: other.source, ..*one });
        all.push(Packet { destination: other.destination, ..*one });
    }
    all.retain(|packet| packet.frame().len() == one.frame().len());
    all
}

proptest! {
    #![proptest_config(config())]

    /// "At most", "no limit", "all dropped" and "together" of all rules of a set at once.
    #[test]
    fn what_a_sentence_promises_is_kept(text in rules::files(1..6), traffic in traffic()) {
        let Some((set, mut model)) = in_force(&text) else {
            return Err(TestCaseError::reject("refused"));
        };
        let claims = Claims::of(&set);
        let mut passed: Vec<Passed> = vec![Passed::new(); set.rules.len()];
        let mut charged = Vec::new();
        let mut now = START;
        for (gap, packet, times) in traffic {
            now += gap;
            let buckets: Vec<_> = (0..set.rules.len()).map(|at| claims.bucket(at, &packet)).collect();
            for _ in 0..times {
                let passes = passes(&mut model, &packet, now);
                let mut of_budget = false;
                for (at, bucket) in buckets.iter().enumerate() {
                    let Some(bucket) = bucket else { continue };
                    match &claims.rules[at].what {
                        What::NoLimit => prop_assert!(passes, "{packet:?} is dropped"),
                        What::Nothing => prop_assert!(!passes, "{packet:?} passes"),
                        What::AtMost(_) if passes => {
                            let all = passed[at].entry(bucket.clone()).or_default();
                            all.push((now, packet));
                        }
                        What::Budget(name) => {
                            prop_assert_eq!(name, "shared");
                            of_budget |= passes;
                        }
                        What::AtMost(_) | What::Anything => {}
                    }
                }
                if of_budget {
                    charged.push((now, packet));
                }
            }
        }
        for (claim, passed) in claims.rules.iter().zip(&passed) {
            if let What::AtMost(bounds) = &claim.what {
                for bound in bounds {
                    for passed in passed.values() {
                        holds(bound, passed)?;
                    }
                }
            }
        }
        if let What::AtMost(bounds) = &claims.budget {
            for bound in bounds {
                holds(bound, &charged)?;
            }
        }
    }

    /// Buckets that are shared: one packet is sent until no more passes, and then another one. It
    /// is dropped if the sentence says that both are in one bucket, and only then.
    #[test]
    fn who_shares_a_bucket_is_said(
        text in rules::files(1..2),
        packets in prop::collection::vec(packet(), 6),
    ) {
        let Some((set, _)) = in_force(&text) else {
            return Err(TestCaseError::reject("refused"));
        };
        let claims = Claims::of(&set);
        let What::AtMost(bounds) = &claims.rules[0].what else {
            return Err(TestCaseError::reject("no limit"));
        };
        let charged =
            |packet: &&Packet| bounds.iter().any(|bound| bound.units(packet) > 0);
        let Some(first) = packets.iter().filter(charged).find(|at| claims.bucket(0, at).is_some())
        else {
            return Err(TestCaseError::reject("no packet"));
        };
        let bucket = claims.bucket(0, first);
        for other in &packets.iter().flat_map(|other| varied(first, other)).collect::<Vec<_>>() {
            if bounds.iter().any(|bound| bound.units(other) != bound.units(first)) {
                continue;
            }
            let mut model = of(&set).unwrap();
            prop_assert!(passes(&mut model, first, START), "{first:?} is dropped");
            let is_used_up = (0..300).any(|_| !passes(&mut model, first, START));
            prop_assert!(is_used_up, "{first:?} passes for ever");
            let theirs = claims.bucket(0, other);
            let passes = passes(&mut model, other, START);
            prop_assert_eq!(
                passes,
                theirs != bucket,
                "{:?} and {:?}: {}",
                first,
                other,
                rule_sentence(&set.rules[0], &set)
            );
        }
    }

    /// Of each rule it is known whether a packet can meet it: those that none meets are met by
    /// none, and those that a proper one meets are met by one of these.
    #[test]
    fn what_no_packet_meets_is_known(
        text in rules::files(1..2),
        packets in prop::collection::vec(packet(), 60),
    ) {
        let Some((set, model)) = in_force(&text) else {
            return Err(TestCaseError::reject("refused"));
        };
        let meeting = set.rules[0].path.traffic().meeting();
        for packet in &packets {
            let now = Ticks::from_nanos(START);
            let found =
                model.rules_of(Framing::Ethernet, &packet.frame(), packet.interface, now);
            let meets = found.source.is_some() || !found.tables.is_empty();
            prop_assert!(meeting.any || !meets, "{packet:?} meets {}", set.rules[0].path);
            let by_words = Claims::of(&set).bucket(0, packet).is_some();
            prop_assert_eq!(by_words, meets, "{:?} {}", packet, set.rules[0].path);
        }
    }
}
