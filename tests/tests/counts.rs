//! Every packet that was sent is counted once: by its reason, by its rule, and by its source. Over
//! every kind of rule and every action, in the kernel and in the model.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::header::Direction;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{KeyedBucket, RuleCounters, TableKey, Tally};
use limiter_datapath::of_key;
use limiter_rules::compile::RuleId;
use limiter_rules::place::budget_tag;
use limiter_rules::{Path, Selector};
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::pair::Pair;
use limiter_tests::root::require_root;

/// Index of the interface that frames of a test run come in by.
const LOOPBACK: u32 = 1;

const SECOND: u64 = 1_000_000_000;

/// After which no limit here has anything used up.
const LONG: u64 = 10 * 86_400 * SECOND;

/// All algorithms, several limits in either order, and limits above soft ones.
const LIMITS: [&str; 12] = [
    "{unit: minute, requests_per_unit: 6, burst: 2}",
    "{unit: minute, requests_per_unit: 6, algorithm: leaky_bucket, backlog: 20s}",
    "{unit: minute, requests_per_unit: 3, algorithm: fixed_window}",
    "{unit: minute, requests_per_unit: 3, algorithm: sliding_log}",
    "{unit: minute, requests_per_unit: 3, algorithm: sliding_counter}",
    "{unit: minute, requests_per_unit: 4, algorithm: sliding_slots, slots: 2}",
    "{unit: minute, requests_per_unit: 6, burst: 2}, {unit: minute, requests_per_unit: 6, burst: \
     1}",
    "{unit: minute, requests_per_unit: 6, burst: 1}, {unit: hour, requests_per_unit: 3}",
    "{unit: minute, requests_per_unit: 3, algorithm: fixed_window}, {unit: minute, \
     requests_per_unit: 6, burst: 2}",
    "{unit: minute, requests_per_unit: 3, burst: 1, ceiling: {unit: minute, requests_per_unit: 6, \
     burst: 3}}",
    "{unit: minute, requests_per_unit: 3, burst: 2, peak: {unit: minute, requests_per_unit: 6, \
     burst: 3}, mark: {dscp: cs1}}",
    "{unit: minute, requests_per_unit: 3, burst: 2, excess: {unit: minute, requests_per_unit: 6, \
     burst: 2}}",
];

const ACTIONS: [&str; 9] = [
    "action: drop",
    "action: reject",
    "action: {mark: {dscp: cs1}}",
    "action: {class: slow}",
    "action: {interface: lo}",
    "action: {cpu: 0}",
    "action: {ban: {evidence: none, strikes: 3, first: 1min}}",
    "shadow_mode: true",
    "on_daemon_loss: shadow",
];

/// Readings of the counters before a case.
#[derive(Clone)]
struct Counters {
    reasons: [Tally; Reason::COUNT],
    rules: BTreeMap<u32, RuleCounters>,
}

struct Scene {
    pair: Pair,
    /// Every case has addresses and a port of its own.
    case: u16,
}

/// How the packets of a source left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    passed: u64,
    dropped: u64,
    /// Before any rule.
    banned: u64,
}

/// Changes of the counters by a case.
struct Counted {
    reasons: [u64; Reason::COUNT],
    bytes: u64,
    rules: BTreeMap<u32, RuleCounters>,
    sources: [(Source, Left); 2],
}

impl Counted {
    fn of(&self, reason: Reason) -> u64 {
        self.reasons[usize::try_from(reason.index()).unwrap()]
    }

    fn all(&self, verdict: Verdict) -> u64 {
        Reason::ALL.into_iter().filter(|r| r.verdict() == verdict).map(|r| self.of(r)).sum()
    }

    fn dropped(&self) -> u64 {
        self.all(Verdict::Drop) - self.of(Reason::Banned)
    }

    fn rule(&self, number: u32) -> RuleCounters {
        self.rules[&number]
    }
}

const fn less(a: Tally, b: Tally) -> Tally {
    Tally { packets: a.packets - b.packets, bytes: a.bytes - b.bytes }
}

impl Scene {
    fn new() -> Self {
        require_root();
        Self { pair: Pair::load("descriptors: []").unwrap(), case: 0 }
    }

    /// The numbers of the rules on sources, of those on other keys, and of a budget.
    fn sources(&self) -> Vec<u32> {
        let installed = self.pair.program.installed();
        let keyed =
            installed.tables.rules.keys().filter(|id| {
                installed.tables.record(id).is_some_and(|record| record.budget_tag == 0)
            });
        let keyed = keyed.filter_map(RuleId::selector);
        let selectors: BTreeSet<Selector> = installed.rules.keys().copied().chain(keyed).collect();
        let number = |selector: &Selector| installed.number(&Path::of_source(selector), &|_| None);
        selectors.iter().filter_map(number).collect()
    }

    fn keyed(&self) -> Vec<u32> {
        let sources = self.sources();
        let records = self.pair.program.installed().tables.records.values();
        let own = records.filter(|record| record.budget_tag == 0 && record.rule != 0);
        let numbers: BTreeSet<u32> = own.map(|record| record.rule).collect();
        numbers.into_iter().filter(|number| !sources.contains(number)).collect()
    }

    fn budget(&self, name: &str) -> u32 {
        self.pair.program.installed().tables.budget(budget_tag(name)).unwrap().1.rule
    }

    /// The counters, which are the same in the kernel and in the model.
    fn counters(&self) -> Counters {
        let installed = self.pair.program.installed();
        let numbers = installed.rules.values().map(|rule| rule.limit.rule);
        let numbers = numbers.chain(installed.tables.records.values().map(|record| record.rule));
        let mut rules = BTreeMap::new();
        for number in numbers.filter(|number| *number != 0) {
            let counters = self.pair.program.rule_counters(number).unwrap();
            assert_eq!(counters, self.pair.model.rule_counters(number), "rule {number}");
            rules.insert(number, counters);
        }
        let reasons = self.pair.program.reasons().unwrap();
        assert_eq!(reasons, self.pair.model.reasons());
        let interface = self.pair.program.interface_counters(LOOPBACK, Direction::In).unwrap();
        assert_eq!(interface, self.pair.model.interface_counters(LOOPBACK, Direction::In));
        let mut seen = interface.passed;
        seen.merge(interface.dropped);
        let mut all = Tally::default();
        for tally in reasons {
            all.merge(tally);
        }
        assert_eq!(seen, all, "every packet is counted at its interface");
        Counters { reasons, rules }
    }

    /// Two sources send 12 packets each, a few at a time. `PORT` in the rules is theirs.
    fn run(&mut self, rules: &str) -> Counted {
        self.case += 1;
        let [high, low] = self.case.to_be_bytes();
        let port = 1000 + self.case;
        self.pair.apply(&rules.replace("PORT", &port.to_string())).unwrap();
        self.pair.after(LONG).unwrap();
        // Nobody has seen the daemon for a second.
        let lost = Ticks::from_nanos(self.pair.now().as_nanos() - SECOND);
        self.pair.program.kernel().set_daemon_lost(lost).unwrap();
        self.pair.model.set_daemon_lost(lost);
        let before = self.counters();
        let mut sources = [1, 2].map(|side| (Source::V4([10, side, high, low]), Left::default()));
        let mut bytes = 0;
        for _ in 0..3 {
            for _ in 0..4 {
                for (source, left) in &mut sources {
                    let Source::V4(address) = *source else { unreachable!() };
                    let syn = Transport::Tcp { source: 40_000, destination: port, flags: 2 };
                    let frame = Frame::ipv4(address, [198, 51, 100, 1]).transport(syn).build();
                    bytes += frame.len() as u64;
                    let reason = self.pair.send(&frame).unwrap().reason;
                    match reason.verdict() {
                        Verdict::Pass => left.passed += 1,
                        Verdict::Drop if reason == Reason::Banned => left.banned += 1,
                        Verdict::Drop => left.dropped += 1,
                    }
                }
            }
            self.pair.after(17 * SECOND).unwrap();
        }
        let after = self.counters();
        let mut reasons = [0; Reason::COUNT];
        for (of, (a, b)) in reasons.iter_mut().zip(before.reasons.iter().zip(&after.reasons)) {
            *of = b.packets - a.packets;
        }
        let rules = after.rules.iter().map(|(number, now)| {
            let then = before.rules[number];
            let counted = RuleCounters {
                passed: less(now.passed, then.passed),
                dropped: less(now.dropped, then.dropped),
                shadowed: less(now.shadowed, then.shadowed),
                marked: less(now.marked, then.marked),
            };
            (*number, counted)
        });
        Counted { reasons, bytes, rules: rules.collect(), sources }
    }

    /// The counters of the buckets of the sources, alike in the kernel and in the model, whichever
    /// table they are in.
    fn buckets(&self, counted: &Counted) -> [Left; 2] {
        let ids = &self.pair.program.installed().tables.ids;
        let table = ids.get(&RuleId::of_source(&Selector::Every).form).copied();
        counted.sources.map(|(source, left)| {
            let bucket = self.pair.program.bucket(source).unwrap().unwrap_or_default();
            assert_eq!(bucket, self.pair.model.bucket(&source).unwrap_or_default());
            let mut all =
                Left { passed: bucket.passed, dropped: bucket.dropped, banned: left.banned };
            let mut keyed = self.pair.model.keyed_all().into_iter();
            let mine = |(key, bucket): &(TableKey, KeyedBucket)| {
                Some(key.table) == table && of_key(key, bucket).0 == source
            };
            if let Some((key, bucket)) = keyed.find(mine) {
                let counters = |found: KeyedBucket| (found.passed, found.dropped);
                let (passed, dropped) = counters(bucket);
                let kernel = self.pair.program.keyed(&key).unwrap();
                assert_eq!(kernel.map(counters), Some((passed, dropped)));
                (all.passed, all.dropped) = (all.passed + passed, all.dropped + dropped);
            }
            all
        })
    }
}

/// Every packet that was sent is in the reasons, and in the only rule that there is: once, as it
/// left.
#[track_caller]
fn adds_up(counted: &Counted, rule: RuleCounters, rules: &str) {
    assert_eq!(counted.reasons.iter().sum::<u64>(), 24, "{rules}");
    assert_eq!(rule.passed.packets, counted.all(Verdict::Pass), "passed of {rules}");
    assert_eq!(rule.dropped.packets, counted.dropped(), "dropped of {rules}");
    assert_eq!(rule.shadowed.packets, counted.of(Reason::Shadow), "shadowed of {rules}");
    let marked = [Reason::Marked, Reason::Class, Reason::Redirected];
    let marked: u64 = marked.into_iter().map(|reason| counted.of(reason)).sum();
    assert_eq!(rule.marked.packets, marked, "marked of {rules}");
    let banned = counted.bytes / 24 * counted.of(Reason::Banned);
    assert_eq!(rule.passed.bytes + rule.dropped.bytes, counted.bytes - banned, "{rules}");
}

/// A budget that is a class counts what it let pass, and what found no room in it.
#[track_caller]
fn class_adds_up(counted: &Counted, class: RuleCounters, rules: &str) {
    assert_eq!(class.passed.packets, counted.of(Reason::Class), "the class of {rules}");
    assert_eq!(class.dropped.packets, counted.of(Reason::OverLimit), "the class of {rules}");
    assert_eq!((class.shadowed.packets, class.marked.packets), (0, 0), "{rules}");
}

const HEAD: &str = "replies: {unit: second, requests_per_unit: 1000}
budgets:
  - {name: slow, rate_limit: {unit: minute, requests_per_unit: 4}}
";

/// Each limit with each action.
fn every_rule(keys: &str) -> impl Iterator<Item = String> {
    LIMITS.into_iter().flat_map(move |limits| {
        ACTIONS.into_iter().map(move |action| {
            let rule = format!("{keys}rate_limits: [{limits}], {action}");
            let closing = "}]".repeat(rule.matches("[{key").count());
            format!("{HEAD}descriptors:\n  - {{{rule}{closing}}}\n")
        })
    })
}

/// Reasons that rules were found to give, so that none of the cases is empty.
fn met(all: &mut BTreeSet<Reason>, counted: &Counted) {
    all.extend(Reason::ALL.into_iter().filter(|reason| counted.of(*reason) > 0));
}

const WANTED: [Reason; 8] = [
    Reason::Conforming,
    Reason::OverLimit,
    Reason::Rejected,
    Reason::Marked,
    Reason::Class,
    Reason::Redirected,
    Reason::Banned,
    Reason::Shadow,
];

#[test]
fn rules_on_sources_count_what_was_sent_once() {
    let mut scene = Scene::new();
    let mut all = BTreeSet::new();
    for rules in every_rule("key: remote_address, ") {
        let counted = scene.run(&rules);
        met(&mut all, &counted);
        adds_up(&counted, counted.rule(scene.sources()[0]), &rules);
        assert_eq!(scene.buckets(&counted), counted.sources.map(|(_, left)| left), "{rules}");
        if rules.contains("class: slow") {
            class_adds_up(&counted, counted.rule(scene.budget("slow")), &rules);
        }
    }
    assert!(WANTED.iter().all(|reason| all.contains(reason)), "{all:?}");
}

#[test]
fn rules_on_other_keys_count_what_was_sent_once() {
    let mut scene = Scene::new();
    let mut all = BTreeSet::new();
    let keys = [
        "key: destination_port, value: PORT, ",
        "key: destination_port, value: PORT, descriptors: [{key: remote_address, ",
        "key: masked_remote_address, v4_prefix_mask_len: 24, ",
    ];
    for rules in keys.into_iter().flat_map(every_rule) {
        let counted = scene.run(&rules);
        met(&mut all, &counted);
        let keyed = scene.keyed();
        assert_eq!(keyed.len(), 1, "{rules}");
        adds_up(&counted, counted.rule(keyed[0]), &rules);
        if rules.contains("class: slow") {
            class_adds_up(&counted, counted.rule(scene.budget("slow")), &rules);
        }
    }
    assert!(WANTED.iter().all(|reason| all.contains(reason)), "{all:?}");
}

/// A budget counts for its rules, whatever their keys are; the buckets of sources count for
/// themselves.
#[test]
fn budgets_count_what_was_sent_once() {
    let mut scene = Scene::new();
    let mut all = BTreeSet::new();
    for key in ["remote_address", "destination_port, value: PORT", "generic_key, value: all"] {
        for (limits, action) in
            LIMITS.into_iter().flat_map(|limits| ACTIONS.map(|action| (limits, action)))
        {
            let rules = format!(
                "{HEAD}  - {{name: b, rate_limits: [{limits}], {action}}}\n\
                 descriptors: [{{key: {key}, budget: b}}]\n"
            );
            let counted = scene.run(&rules);
            met(&mut all, &counted);
            adds_up(&counted, counted.rule(scene.budget("b")), &rules);
            if action.contains("class: slow") {
                class_adds_up(&counted, counted.rule(scene.budget("slow")), &rules);
            }
            if key == "remote_address" {
                assert_eq!(
                    scene.buckets(&counted),
                    counted.sources.map(|(_, left)| left),
                    "{rules}"
                );
            }
        }
    }
    assert!(WANTED.iter().all(|reason| all.contains(reason)), "{all:?}");
}

/// A rule on sources beside one on a port, and a narrow rule on sources inside a wide one: every
/// rule counts what passes, and one of them what is dropped.
#[test]
fn rules_beside_each_other_count_what_was_sent_once() {
    let mut scene = Scene::new();
    for (index, (limits, action)) in
        LIMITS.into_iter().flat_map(|limits| ACTIONS.map(|action| (limits, action))).enumerate()
    {
        let (other, beside) = (LIMITS[index * 5 % 12], ACTIONS[index * 7 % 9]);
        let rules = format!(
            "{HEAD}descriptors:
  - {{key: remote_address, rate_limits: [{limits}], {action}}}
  - {{key: destination_port, value: PORT, rate_limits: [{other}], {beside}}}\n"
        );
        let counted = scene.run(&rules);
        let (source, port) = (counted.rule(scene.sources()[0]), counted.rule(scene.keyed()[0]));
        assert_eq!(counted.reasons.iter().sum::<u64>(), 24, "{rules}");
        for rule in [source, port] {
            assert_eq!(rule.passed.packets, counted.all(Verdict::Pass), "{rules}");
            let over = rule.shadowed.packets + rule.marked.packets;
            assert!(over <= rule.passed.packets, "{rule:?} {rules}");
        }
        let dropped = source.dropped.packets + port.dropped.packets;
        assert_eq!(dropped, counted.dropped(), "{rules}");
        let buckets = scene.buckets(&counted);
        assert_eq!(buckets.map(|left| left.passed), counted.sources.map(|(_, l)| l.passed));
        let of_sources: u64 = buckets.iter().map(|left| left.dropped).sum();
        assert_eq!(of_sources, source.dropped.packets, "{rules}");

        let rules = format!(
            "{HEAD}descriptors:
  - {{key: remote_address, rate_limits: [{limits}], {action}}}
  - {{key: remote_address, value: 10.0.0.0/8, rate_limits: [{other}], {beside}}}\n"
        );
        let counted = scene.run(&rules);
        // In the order of their selectors: every source, then the prefix.
        let numbers = scene.sources();
        assert_eq!(counted.rule(numbers[0]), RuleCounters::default(), "{rules}");
        adds_up(&counted, counted.rule(numbers[1]), &rules);
        assert_eq!(scene.buckets(&counted), counted.sources.map(|(_, left)| left), "{rules}");
    }
}
