//! Limits that change while time passes: what a source passes is what one ideal token bucket passes
//! that is informed of every change, and never more than the largest burst and the rates in
//! between.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]
#![expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]

use std::collections::BTreeMap;

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_model::Model;
use limiter_rules::{Environment, Plan, RuleFile};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// The grain of noted times: changes at its multiples are noted exactly.
const GRAIN: u64 = 1024;
const SECOND: u64 = 1_000_000_000;
const START: u64 = 1000 * SECOND / GRAIN * GRAIN;

/// Settings of a limit under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    /// Packets in so many seconds: 1, or a day.
    rate: u64,
    a_day: bool,
    burst: u64,
}

impl Bucket {
    fn yaml(self) -> String {
        let Self { rate, a_day, burst } = self;
        let unit = if a_day { "day" } else { "second" };
        format!("{{unit: {unit}, requests_per_unit: {rate}, burst: {burst}}}")
    }

    fn per_nanosecond(self) -> f64 {
        let seconds = if self.a_day { 86_400.0 } else { 1.0 };
        f64::from(u32::try_from(self.rate).unwrap()) / seconds / 1e9
    }

    fn burst(self) -> f64 {
        f64::from(u32::try_from(self.burst).unwrap())
    }
}

fn bucket() -> impl Strategy<Value = Bucket> {
    let second = (1u64..2000, 1u64..200).prop_map(|(rate, burst)| (rate, false, burst));
    let day = (1u64..50, 1u64..20).prop_map(|(rate, burst)| (rate, true, burst));
    prop_oneof![second, day].prop_map(|(rate, a_day, burst)| Bucket { rate, a_day, burst })
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// So many packets at once.
    Packets(u64),
    /// The rule of everybody changes.
    Everybody(Bucket),
    /// The source gets a rule of its own, or another one.
    Own(Bucket),
    /// The source has no rule of its own any more.
    NoOwn,
    /// A rule of somebody else.
    Other(Bucket),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u64..300).prop_map(Event::Packets),
        1 => bucket().prop_map(Event::Everybody),
        2 => bucket().prop_map(Event::Own),
        2 => Just(Event::NoOwn),
        1 => bucket().prop_map(Event::Other),
    ]
}

/// Nanoseconds between two events, in grains.
fn gap() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0u64),
        4 => 0..50_000_000 / GRAIN,
        2 => 0..5 * SECOND / GRAIN,
        1 => 0..100_000 * SECOND / GRAIN,
    ]
    .prop_map(|grains| grains * GRAIN)
}

/// Place of the rules of sources: the table of sources, or keys of another one.
#[derive(Clone, Copy, Debug)]
enum Place {
    Sources,
    Keys,
}

/// The rules in force, and the bucket that is informed of every change.
struct Maps {
    model: Model,
    place: Place,
    now: u64,
    everybody: Bucket,
    own: Option<Bucket>,
    others: BTreeMap<u8, Bucket>,
    tokens: Option<f64>,
    counted: u64,
    /// True for each of the two rules if it was never cut since it began.
    never_cut: [bool; 2],
}

impl Maps {
    fn new(place: Place, everybody: Bucket) -> Self {
        let mut maps = Self {
            model: Model::new(),
            place,
            now: START,
            everybody,
            own: None,
            others: BTreeMap::new(),
            tokens: None,
            counted: START,
            never_cut: [true; 2],
        };
        maps.commit();
        maps
    }

    fn limit(&self) -> Bucket {
        self.own.unwrap_or(self.everybody)
    }

    /// The tokens of the ideal bucket now.
    fn catch_up(&mut self) {
        let limit = self.limit();
        let gone = (self.now - self.counted) as f64;
        self.tokens =
            self.tokens.map(|tokens| limit.burst().min(tokens + gone * limit.per_nanosecond()));
        self.counted = self.now;
    }

    fn change(&mut self, event: Event) {
        self.catch_up();
        let (old, was_own) = (self.limit(), self.own.is_some());
        match event {
            Event::Packets(_) => {}
            Event::Everybody(bucket) => {
                self.never_cut[0] &= bucket.burst >= self.everybody.burst;
                self.everybody = bucket;
            }
            Event::Own(bucket) => {
                let old = self.own.replace(bucket);
                // The rule of everybody held its source before.
                self.never_cut[1] =
                    old.is_some_and(|old| self.never_cut[1] && bucket.burst >= old.burst);
            }
            Event::NoOwn => self.own = None,
            Event::Other(bucket) => {
                self.others.insert(9, bucket);
            }
        }
        let (new, is_own) = (self.limit(), self.own.is_some());
        let raised = was_own == is_own && self.never_cut[usize::from(is_own)];
        let difference = if raised { (new.burst() - old.burst()).max(0.0) } else { 0.0 };
        self.tokens = self.tokens.map(|tokens| (tokens + difference).min(new.burst()));
        self.commit();
    }

    /// Another limit for everybody, on trial for an hour.
    fn on_trial(&mut self, everybody: Bucket) {
        let before = std::mem::replace(&mut self.everybody, everybody);
        let plan = self.plan();
        self.everybody = before;
        let (now, end) = (self.now, self.now + 3600 * SECOND);
        self.model.commit_on_trial(plan, Ticks::from_nanos(end), Ticks::from_nanos(now));
    }

    fn commit(&mut self) {
        let plan = self.plan();
        self.model.commit(plan, Ticks::from_nanos(self.now));
    }

    fn plan(&self) -> Plan {
        let own = self.own.map(|bucket| (1, bucket));
        let single = self.others.iter().map(|(host, bucket)| (*host, *bucket)).chain(own);
        let single = single.map(|(host, bucket)| {
            format!(
                "  - key: remote_address\n    value: 192.0.2.{host}\n    rate_limit: {}\n",
                bucket.yaml()
            )
        });
        let rules = format!(
            "  - key: remote_address\n    rate_limit: {}\n{}",
            self.everybody.yaml(),
            single.collect::<String>()
        );
        let yaml = match self.place {
            Place::Sources => format!("descriptors:\n{rules}"),
            Place::Keys => {
                let inner = rules.replace('\n', "\n    ");
                format!(
                    "descriptors:\n  - key: protocol\n    value: udp\n    descriptors:\n    {}",
                    inner.trim_end()
                )
            }
        };
        let set = RuleFile::parse("t.yaml", yaml.as_bytes(), 1522).unwrap().rules;
        let none = |_: &str| None;
        let machine = Environment {
            max_frame: 1522,
            interface_index: &none,
            cpus: 1,
            cluster: None,
            in_at_tc: Some(false),
        };
        let generation = self.model.generation() + 1;
        self.model.installed().plan(&set, generation, 1024, &machine).unwrap()
    }

    fn passes(&mut self) -> bool {
        let reason = self.model.judge(&frame(), Ticks::from_nanos(self.now)).reason;
        assert!(matches!(reason, Reason::Conforming | Reason::OverLimit), "{reason:?}");
        reason.verdict() == Verdict::Pass
    }
}

/// UDP from 192.0.2.1.
fn frame() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&[192, 0, 2, 1]);
    frame[30..34].copy_from_slice(&[198, 51, 100, 1]);
    frame[36..40].copy_from_slice(&[0, 53, 0, 26]);
    frame
}

/// Error that rounding may make: a tick and 2^-32 of a unit for each change, and the float's own.
const ERROR: f64 = 1e-4;

fn config() -> ProptestConfig {
    let persistence = FileFailurePersistence::Direct("tests/changes.proptest-regressions");
    ProptestConfig {
        cases: 200,
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::default()
    }
}

fn place() -> impl Strategy<Value = Place> {
    prop::sample::select(vec![Place::Sources, Place::Keys])
}

proptest! {
    #![proptest_config(config())]

    /// Between two packets the limit of the source changes at most once, and those of others as
    /// they like. However long the source was silent before that and after, it meets exactly the
    /// ideal bucket.
    #[test]
    fn a_change_is_exact_however_long_the_source_was_silent(
        place in place(), first in bucket(),
        events in prop::collection::vec((gap(), event()), 1..40),
    ) {
        let mut maps = Maps::new(place, first);
        let mut changed = false;
        for (gap, event) in events {
            maps.now += gap;
            let before = maps.limit();
            match event {
                Event::Packets(packets) => {
                    changed = false;
                    for _ in 0..packets {
                        maps.catch_up();
                        let tokens = maps.tokens.unwrap_or_else(|| maps.limit().burst());
                        let passed = maps.passes();
                        if passed {
                            prop_assert!(tokens >= 1.0 - ERROR, "passed with {tokens}");
                        } else {
                            prop_assert!(tokens < 1.0 + ERROR, "dropped with {tokens}");
                        }
                        maps.tokens = Some(if passed { (tokens - 1.0).max(0.0) } else { tokens });
                    }
                }
                Event::Everybody(_) | Event::Own(_) | Event::NoOwn if changed => {}
                event => {
                    maps.change(event);
                    // An equal limit in another slot is a change all the same.
                    let moved = matches!(event, Event::Own(_) | Event::NoOwn);
                    changed |= maps.limit() != before || moved;
                }
            }
        }
    }

    /// Any changes of a rule, back and forth, with packets between all of them: in any time the
    /// source passes no more than the largest burst that was in force in it, and what each rate
    /// gave while it was.
    #[test]
    fn changes_of_a_rule_pass_no_more_than_the_largest_burst_and_what_each_rate_gave(
        place in place(), first in bucket(),
        events in prop::collection::vec((gap(), event()), 1..60),
    ) {
        let mut maps = Maps::new(place, first);
        // Packets that came back until each one that passed, and the burst of then.
        let mut passed: Vec<(f64, f64)> = Vec::new();
        let (mut came_back, mut counted) = (0.0, maps.now);
        let mut changed = false;
        for (gap, event) in events {
            maps.now += gap;
            came_back += (maps.now - counted) as f64 * maps.limit().per_nanosecond();
            counted = maps.now;
            match event {
                Event::Packets(packets) => {
                    changed = false;
                    for _ in 0..packets {
                        if maps.passes() {
                            passed.push((came_back, maps.limit().burst()));
                        }
                    }
                }
                Event::Everybody(bucket) | Event::Own(bucket) if !changed => {
                    changed = true;
                    maps.change(Event::Everybody(bucket));
                }
                Event::Other(_) => maps.change(event),
                Event::Everybody(_) | Event::Own(_) | Event::NoOwn => {}
            }
        }
        for (index, (since, _)) in passed.iter().enumerate() {
            let mut most: f64 = 0.0;
            for (number, (until, burst)) in passed[index..].iter().enumerate() {
                most = most.max(*burst);
                let (count, gave) = (number as f64 + 1.0, until - since);
                prop_assert!(count <= most + gave + ERROR, "{count} of {most} and {gave}");
            }
        }
    }

    /// Any changes, many of them while the source is silent: in any time it passes no more than the
    /// largest burst and what the fastest rate gives in that time.
    #[test]
    fn no_changes_pass_more_than_the_largest_burst_and_rate(
        place in place(), first in bucket(),
        events in prop::collection::vec((gap(), event()), 1..60),
    ) {
        let mut maps = Maps::new(place, first);
        let (mut burst, mut rate) = (first.burst(), first.per_nanosecond());
        let mut passed: Vec<u64> = Vec::new();
        for (gap, event) in events {
            maps.now += gap;
            if let Event::Packets(packets) = event {
                for _ in 0..packets {
                    if maps.passes() {
                        passed.push(maps.now);
                    }
                }
            } else {
                maps.change(event);
                burst = burst.max(maps.limit().burst());
                rate = rate.max(maps.limit().per_nanosecond());
            }
        }
        for (index, since) in passed.iter().enumerate() {
            for (number, at) in passed[index..].iter().enumerate() {
                        let (count, gone) = (number as f64 + 1.0, (at - since) as f64);
                prop_assert!(count <= burst + rate * gone + ERROR, "{count} in {gone} ns");
            }
        }
    }
}

/// Back and forth, twenty times a second for six seconds, under a load that is over both: what
/// passes is what the time in each limit gives, and one burst.
#[test]
fn changes_to_and_fro_grant_no_burst_each_time() {
    let small = Bucket { rate: 100, a_day: false, burst: 1 };
    let large = Bucket { rate: 1000, a_day: false, burst: 1000 };
    for place in [Place::Sources, Place::Keys] {
        let mut maps = Maps::new(place, large);
        let mut passed = 0;
        for step in 0..6_000u64 {
            maps.now = START + step * 1_000_000 / GRAIN * GRAIN;
            if step > 0 && step % 50 == 0 {
                maps.change(Event::Everybody(if step % 100 == 0 { large } else { small }));
            }
            passed += (0..8).filter(|_| maps.passes()).count();
        }
        // Three seconds of each rate, and of the first burst what is sent before the first change.
        assert!((3_500..=3_700).contains(&passed), "{place:?}: {passed}");
    }
}

/// A week's penalty ends with the limit that gave it, for a source that says nothing.
#[test]
fn a_loosened_limit_costs_a_silent_source_nothing() {
    let tight = Bucket { rate: 1, a_day: true, burst: 1 };
    let loose = Bucket { rate: 1000, a_day: false, burst: 200 };
    for place in [Place::Sources, Place::Keys] {
        let mut maps = Maps::new(place, loose);
        maps.change(Event::Own(tight));
        assert!(maps.passes());
        assert!(!maps.passes());
        maps.now += 5 * SECOND;
        maps.change(Event::NoOwn);
        // Somebody else's rule in between is no change of this one.
        maps.now += 100 * SECOND;
        maps.change(Event::Other(tight));
        maps.now += GRAIN;
        let passed = (0..300).take_while(|_| maps.passes()).count();
        assert_eq!(passed, 200, "{place:?}");
    }
}

/// A used-up limit that is raised gives the difference, once: after a cut, on trial and of another
/// rule it gives its rate alone.
#[test]
fn a_raise_gives_the_difference_once() {
    let day = |rate| Bucket { rate, a_day: true, burst: rate };
    for place in [Place::Sources, Place::Keys] {
        let mut maps = Maps::new(place, day(10));
        let pass = |maps: &mut Maps| (0..200).take_while(|_| maps.passes()).count();
        assert_eq!(pass(&mut maps), 10);
        maps.change(Event::Everybody(day(20)));
        assert_eq!(pass(&mut maps), 10, "{place:?}");
        // Nobody came under this one.
        maps.change(Event::Everybody(day(30)));
        maps.change(Event::Everybody(day(50)));
        assert_eq!(pass(&mut maps), 30, "{place:?}");
        for _ in 0..3 {
            maps.change(Event::Own(day(99)));
            assert_eq!(pass(&mut maps), 0, "{place:?}: of another rule");
            maps.change(Event::Own(day(120)));
            assert_eq!(pass(&mut maps), 0, "{place:?}: of a rule that took it over");
            maps.change(Event::NoOwn);
            assert_eq!(pass(&mut maps), 0, "{place:?}");
            maps.change(Event::Everybody(day(5)));
            assert_eq!(pass(&mut maps), 0, "{place:?}");
            maps.change(Event::Everybody(day(50)));
            assert_eq!(pass(&mut maps), 0, "{place:?}: after a cut");
            maps.change(Event::Everybody(day(90)));
            assert_eq!(pass(&mut maps), 0, "{place:?}: after a cut");
        }
    }
}

/// Trials of a larger limit, back and forth, grant nothing; a confirmed one is a raise to those who
/// come afterwards.
#[test]
fn trials_to_and_fro_grant_no_burst() {
    let day = |rate| Bucket { rate, a_day: true, burst: rate };
    for place in [Place::Sources, Place::Keys] {
        let mut maps = Maps::new(place, day(10));
        let pass = |maps: &mut Maps| (0..200).take_while(|_| maps.passes()).count();
        assert_eq!(pass(&mut maps), 10);
        for _ in 0..3 {
            maps.on_trial(day(30));
            assert_eq!(pass(&mut maps), 0, "{place:?}");
            maps.model.revert(Ticks::from_nanos(maps.now));
            assert_eq!(pass(&mut maps), 0, "{place:?}");
        }
        // As it was, but for those trials: a raise gives the difference.
        maps.change(Event::Everybody(day(20)));
        assert_eq!(pass(&mut maps), 10, "{place:?}");
        maps.on_trial(day(30));
        maps.model.confirm();
        assert_eq!(pass(&mut maps), 10, "{place:?}: confirmed before the next packet");
        maps.change(Event::Everybody(day(40)));
        assert_eq!(pass(&mut maps), 10, "{place:?}: a confirmed trial is no cut");
    }
}

/// A trial of a smaller limit that is taken back leaves what the limit before would have left, by a
/// word or by itself. On trial what was used counts in full; once the trial is confirmed and in
/// force anew, only up to the burst.
#[test]
fn a_trial_taken_back_leaves_what_the_limit_before_would_have_left() {
    let day = |rate| Bucket { rate, a_day: true, burst: rate };
    for place in [Place::Sources, Place::Keys] {
        for (used, on_trial) in [(5, 5), (600, 0), (1_000, 0)] {
            for by_itself in [false, true] {
                let mut maps = Maps::new(place, day(1_000));
                let pass = |maps: &mut Maps, most| (0..most).take_while(|_| maps.passes()).count();
                assert_eq!(pass(&mut maps, used), used);
                maps.on_trial(day(10));
                let taken = pass(&mut maps, 1);
                assert_eq!(taken, on_trial.min(1), "{place:?}: {used}");
                if by_itself {
                    // An hour gives less than one on trial.
                    maps.now += 3_600 * SECOND;
                } else {
                    maps.model.revert(Ticks::from_nanos(maps.now));
                }
                assert_eq!(pass(&mut maps, 2_000), 1_000 - used - taken, "{place:?}: {used}");
            }
            let mut maps = Maps::new(place, day(1_000));
            let pass = |maps: &mut Maps, most| (0..most).take_while(|_| maps.passes()).count();
            assert_eq!(pass(&mut maps, used), used);
            maps.on_trial(day(10));
            assert_eq!(pass(&mut maps, 2_000), on_trial, "{place:?}: {used}");
            maps.model.confirm();
            assert!(maps.model.installed().has_cuts_on_trial());
            maps.change(Event::Everybody(day(10)));
            assert!(!maps.model.installed().has_cuts_on_trial());
            assert_eq!(pass(&mut maps, 2_000), 0, "{place:?}: {used}");
            maps.now += 86_400 * SECOND;
            assert_eq!(pass(&mut maps, 2_000), 10, "{place:?}: {used}");
        }
    }
}
