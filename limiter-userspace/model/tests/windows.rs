//! Windows and logs whose number changes while packets come, also on trial: what passes is what an
//! account of all packets allows, and what was used stays used.

#![expect(clippy::unwrap_used, reason = "a failed conversion is a failed test")]

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_model::Model;
use limiter_rules::{Environment, RuleFile};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const GRAIN: u64 = 1024;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const START: u64 = 1000 * SECOND / GRAIN * GRAIN;

/// An algorithm that counts in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Fixed,
    Counter,
    Slots,
    Log,
}

impl Window {
    const ALL: [Self; 4] = [Self::Fixed, Self::Counter, Self::Slots, Self::Log];

    fn yaml(self) -> &'static str {
        match self {
            Self::Fixed => "algorithm: fixed_window",
            Self::Counter => "algorithm: sliding_counter",
            Self::Slots => "algorithm: sliding_slots, slots: 4",
            Self::Log => "algorithm: sliding_log",
        }
    }

    /// True if one more packet is within `limit`, by the times of all packets that passed.
    fn has_room(self, passed: &[u64], limit: u64, now: u64) -> bool {
        let count = |holds: &dyn Fn(u64) -> bool| {
            u64::try_from(passed.iter().filter(|at| holds(**at)).count()).unwrap()
        };
        match self {
            Self::Fixed => count(&|at| at / MINUTE == now / MINUTE) < limit,
            Self::Counter => {
                let current = count(&|at| at / MINUTE == now / MINUTE);
                let last = count(&|at| at / MINUTE + 1 == now / MINUTE).min(limit);
                let weight = MINUTE - now % MINUTE;
                last * weight + (current + 1) * MINUTE <= limit * MINUTE
            }
            Self::Slots => {
                let slot = |at: u64| at / (MINUTE / 4);
                count(&|at| slot(at) + 4 > slot(now)) < limit
            }
            Self::Log => count(&|at| at + MINUTE > now) < limit,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// So many packets at once.
    Packets(usize),
    Number(u64),
    /// Another number on trial, for so long.
    Trial(u64, u64),
    /// A trial is taken back.
    Revert,
    Confirm,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1usize..40).prop_map(Event::Packets),
        2 => (1u64..25).prop_map(Event::Number),
        2 => (1u64..25, span()).prop_map(|(number, time)| Event::Trial(number, time)),
        1 => Just(Event::Revert),
        1 => Just(Event::Confirm),
    ]
}

/// A time in nanoseconds, in grains.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0), 4 => 0..20 * SECOND / GRAIN, 1 => 0..100 * SECOND / GRAIN]
        .prop_map(|grains| grains * GRAIN)
}

struct Maps {
    model: Model,
    window: Window,
    /// In the table of sources, or with another key.
    keyed: bool,
    now: u64,
    number: u64,
    /// The number before a trial, and when that ends.
    before: Option<(u64, u64)>,
}

impl Maps {
    fn new(window: Window, keyed: bool, number: u64) -> Self {
        let model = Model::new();
        let mut maps = Self { model, window, keyed, now: START, number, before: None };
        maps.commit(number, None);
        maps
    }

    fn limit(&self) -> u64 {
        match self.before {
            Some((before, end)) if self.now >= end => before,
            _ => self.number,
        }
    }

    fn commit(&mut self, number: u64, end: Option<u64>) {
        let rule = format!(
            "  - key: remote_address\n    rate_limit: {{unit: minute, requests_per_unit: {number}, \
             {}}}\n",
            self.window.yaml()
        );
        let yaml = if self.keyed {
            let inner = rule.replace('\n', "\n    ");
            let inner = inner.trim_end();
            format!(
                "descriptors:\n  - key: protocol\n    value: udp\n    descriptors:\n    {inner}"
            )
        } else {
            format!("descriptors:\n{rule}")
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
        let plan = self.model.installed().plan(&set, generation, 1024, &machine).unwrap();
        let now = Ticks::from_nanos(self.now);
        match end {
            None => self.model.commit(plan, now),
            Some(end) => self.model.commit_on_trial(plan, Ticks::from_nanos(end), now),
        };
    }

    fn change(&mut self, event: Event) {
        match (event, self.before) {
            (Event::Packets(_), _) | (Event::Revert | Event::Confirm, None) => {}
            (Event::Number(number), None) => {
                self.commit(number, None);
                self.number = number;
            }
            (Event::Trial(number, time), None) => {
                let end = self.now + time;
                self.commit(number, Some(end));
                self.before = Some((self.number, end));
                self.number = number;
            }
            (Event::Confirm, Some((_, end))) if self.now < end => {
                self.model.confirm();
                self.before = None;
            }
            // It is over, or taken back: nothing else is put in force meanwhile.
            (_, Some((before, _))) => {
                self.model.revert(Ticks::from_nanos(self.now));
                self.number = before;
                self.before = None;
            }
        }
    }

    fn passes(&mut self) -> bool {
        let reason = self.model.judge(&frame(), Ticks::from_nanos(self.now)).reason;
        assert!(matches!(reason, Reason::Conforming | Reason::OverLimit), "{reason:?}");
        reason.verdict() == Verdict::Pass
    }

    fn pass(&mut self) -> usize {
        (0..100).take_while(|_| self.passes()).count()
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

fn config() -> ProptestConfig {
    let persistence = FileFailurePersistence::Direct("tests/windows.proptest-regressions");
    ProptestConfig {
        cases: 100,
        failure_persistence: Some(Box::new(persistence)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// However the number changes, whether it is confirmed or taken back, by a word or by itself.
    #[test]
    fn what_was_used_stays_used(
        window in prop::sample::select(Window::ALL.to_vec()), keyed: bool, first in 1u64..25,
        events in prop::collection::vec((span(), event()), 1..60),
    ) {
        let mut maps = Maps::new(window, keyed, first);
        let mut passed = Vec::new();
        // The smallest log since a minute: packets that a cut left no entry for count a little
        // longer.
        let mut cut = 0;
        for (gap, event) in events {
            maps.now += gap;
            if let Event::Packets(packets) = event {
                for _ in 0..packets {
                    let room = window.has_room(&passed, maps.limit(), maps.now);
                    let passes = maps.passes();
                    let lingers = window == Window::Log && maps.now < cut + MINUTE;
                    prop_assert!(
                        passes == room || room && lingers,
                        "{window:?} {}: {room}, {passes}", maps.limit()
                    );
                    if passes {
                        passed.push(maps.now);
                    }
                }
            } else {
                let before = maps.limit();
                maps.change(event);
                cut = if maps.limit() == before { cut } else { maps.now };
            }
        }
    }
}

/// Raising a used-up quota gives the difference at once, and no more the second time.
#[test]
fn a_raise_gives_the_difference_once() {
    for window in Window::ALL {
        for keyed in [false, true] {
            let mut maps = Maps::new(window, keyed, 10);
            assert_eq!(maps.pass(), 10, "{window:?}");
            for round in 0..5 {
                maps.change(Event::Number(20));
                assert_eq!(maps.pass(), if round == 0 { 10 } else { 0 }, "{window:?}");
                maps.change(Event::Number(10));
                assert_eq!(maps.pass(), 0, "{window:?}");
                maps.change(Event::Number(1));
                assert_eq!(maps.pass(), 0, "{window:?}");
            }
            maps.change(Event::Number(24));
            assert_eq!(maps.pass(), 4, "{window:?}");
        }
    }
}

/// A trial that is taken back leaves the quota as it was, whether it was larger or smaller and who
/// came meanwhile.
#[test]
fn a_trial_taken_back_leaves_the_quota() {
    for window in Window::ALL {
        for (number, taken) in [(2, 0), (6, 0), (6, 1), (24, 3)] {
            for by_itself in [false, true] {
                let mut maps = Maps::new(window, true, 10);
                for _ in 0..5 {
                    assert!(maps.passes());
                }
                maps.now += SECOND / GRAIN * GRAIN;
                maps.change(Event::Trial(number, 5 * SECOND / GRAIN * GRAIN));
                let passed = (0..taken).take_while(|_| maps.passes()).count();
                assert_eq!(passed, taken, "{window:?}");
                if by_itself {
                    maps.now += 6 * SECOND / GRAIN * GRAIN;
                } else {
                    maps.change(Event::Revert);
                }
                assert_eq!(maps.pass(), 5 - taken, "{window:?}: {number}");
            }
        }
    }
}
