//! One random sequence of frames, times and rule files over every descriptor and algorithm
//! through the program in the kernel and through the model on the host: equal verdicts, counters,
//! buckets and budgets.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

mod departures;
mod frames;
mod rules;
mod short;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use fastrand::Rng;
use limiter_common::bucket::Slot;
use limiter_common::header::Direction;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::window::WallOffset;
use limiter_common::wire::{Ask, BUDGET_LEASES, KEY_LEASES, KeyLeases, TableKey, lease_of_budget};
use limiter_datapath::{Framing, Reading, SourceTable, Way};
use limiter_decision::outcome::Outcome;
use limiter_decision::packet::Segments;
use limiter_model::{Model, Packet};
use limiter_rules::Installed;
use limiter_tests::asked::Asked;
use limiter_tests::program::{Program, SEED, SOURCE_STORES, rule_set};
use limiter_tests::root::require_root;

use rules::Rules;

/// Steps between two rule changes at most, and between two comparisons of everything.
const CHANGE: u32 = 800;

/// Of so many frames, one is asked about before it comes.
const ASKED: u32 = 8;

/// Sources of the sequence that have a bucket of their own.
fn sources() -> impl Iterator<Item = Source> {
    let v4 = (2..4).flat_map(|c| (0..5).map(move |d| Source::V4([192, 0, c, d])));
    let v6 = (0..2).flat_map(|b| (0..3).map(move |d| Source::V6([0x20, 1, 0xd, 0xb8, 0, b, 0, d])));
    v4.chain(v6)
}

fn compare_all(program: &mut Program, model: &Model, context: &str) {
    let kernel = program.reasons().unwrap();
    for (reason, (a, b)) in Reason::ALL.iter().zip(kernel.iter().zip(&model.reasons())) {
        assert_eq!(a, b, "{context}: {}", reason.name());
    }
    let installed = program.installed();
    let numbers: BTreeSet<u32> = installed
        .rules
        .values()
        .map(|rule| rule.limit.rule)
        .chain(installed.tables.records.values().map(|record| record.rule))
        .collect();
    for number in numbers {
        let kernel = program.rule_counters(number).unwrap();
        assert_eq!(kernel, model.rule_counters(number), "{context}: rule {number}");
    }
    for source in sources() {
        let kernel = program.bucket(source).unwrap();
        assert_eq!(kernel, model.bucket(&source), "{context}: {source:?}");
    }
    for (key, bucket) in model.keyed_all() {
        assert_eq!(program.keyed(&key).unwrap(), Some(bucket), "{context}: {key:?}");
    }
    for index in 0..8 {
        if let Some(budget) = model.budget(index) {
            assert_eq!(program.budget(index).unwrap(), budget, "{context}: budget {index}");
        }
        for place in 0..4 {
            let index = lease_of_budget(index, place);
            let lease = program.lease(index).unwrap().read();
            assert_eq!(lease, model.lease(index).read(), "{context}: lease {index}");
        }
    }
}

/// Checks that a restart reads back from the maps what was in force. The slots of the generation
/// before need not be known.
fn assert_same_rules(read: &Installed, known: &Installed, context: &str) {
    assert_eq!(read.rules, known.rules, "{context}");
    let (read, known) = (&read.tables, &known.tables);
    assert_eq!(read.ids, known.ids, "{context}");
    assert_eq!(read.rules, known.rules, "{context}");
    assert_eq!(read.records, known.records, "{context}");
    assert_eq!(read.actions, known.actions, "{context}");
}

/// Findings of a run, and where its time went.
#[derive(Default)]
struct Met {
    reasons: [u64; Reason::COUNT],
    /// Questions about a frame before it came.
    asked: Asked,
    /// Keys that asked for leases.
    asks: u64,
    changes: u32,
    refused: u32,
    restarts: u32,
    /// Trials that ended by themselves.
    ended: u32,
    kernel: Duration,
    model: Duration,
    commits: Duration,
    comparisons: Duration,
    /// Packets that wait.
    departures: u64,
}

/// Says that the daemon is lost some time before or after now.
fn lose(random: &mut Rng, now: u64, program: &mut Program, model: &mut Model) {
    let lost = Ticks::from_nanos(now + random.u64(0..40_000_000_000) - 20_000_000_000);
    program.kernel().set_daemon_lost(lost).unwrap();
    model.set_daemon_lost(lost);
}

/// Sets the wall clock now and then, and says that the daemon is lost.
fn set_clocks(random: &mut Rng, now: u64, program: &mut Program, model: &mut Model) {
    if random.u8(0..8) == 0 {
        let offset = WallOffset::of_clocks(random.u64(..1 << 60), 0);
        program.set_wall_offset(offset).unwrap();
        model.set_wall_offset(offset);
    }
    if random.u8(0..4) == 0 {
        lose(random, now, program, model);
    }
}

/// Grants the leases of a budget, or ends them.
fn grant(random: &mut Rng, now: u64, program: &mut Program, model: &Model) {
    let budget = random.u32(0..8);
    for place in 0..4 {
        let index = lease_of_budget(budget, place);
        let units = [random.u64(0..8), random.u64(0..3_000), random.u64(0..2_000_000)];
        let granted = model.lease(index).read().used + units[random.usize(0..3)];
        let expires = Ticks::from_nanos(now - 5_000_000_000 + random.u64(0..30_000_000_000));
        program.lease(index).unwrap().grant(granted, expires);
        model.lease(index).grant(granted, expires);
    }
}

/// Keys that have asked for leases, each with its place among the leases of keys.
#[derive(Default)]
struct AskedKeys(Vec<TableKey>);

impl AskedKeys {
    /// Leases that a key has room for.
    const EACH: u32 = 4;

    /// Both have heard the same keys, and have the same entries of them.
    fn compare(&mut self, program: &Program, model: &Model, context: &str) -> Vec<(u32, Ask)> {
        let asks = program.leases().unwrap().take_asks();
        assert_eq!(asks, model.take_asks(), "{context}");
        for key in &self.0 {
            let leased = Reading::leased(program.reading(), *key).unwrap();
            assert_eq!(leased, model.leased(key), "{context}: {key:?}");
        }
        let number = |ask: Ask| {
            let found = self.0.iter().position(|key| *key == ask.key).unwrap_or_else(|| {
                self.0.push(ask.key);
                self.0.len() - 1
            });
            (u32::try_from(found).unwrap(), ask)
        };
        asks.into_iter().map(number).collect()
    }

    /// Answers keys that have asked: with leases, later, or not at all. Others lose theirs, or are
    /// informed that another node has some.
    fn answer(
        &mut self,
        random: &mut Rng,
        now: u64,
        (program, model): (&mut Program, &Model),
        context: &str,
    ) -> u64 {
        let asks = self.compare(program, model, context);
        let count = asks.len();
        for (number, ask) in asks {
            let first = BUDGET_LEASES + number % (KEY_LEASES / Self::EACH) * Self::EACH;
            if random.u8(0..4) == 0 {
                continue;
            }
            for index in first..first + Self::EACH {
                let units = [random.u64(0..8), random.u64(0..3_000), random.u64(0..2_000_000)];
                let granted = model.lease(index).read().used + units[random.usize(0..3)];
                let expires = Ticks::from_nanos(now - 1_000_000_000 + random.u64(0..9_000_000_000));
                program.lease(index).unwrap().grant(granted, expires);
                model.lease(index).grant(granted, expires);
            }
            let leases = KeyLeases::new(Slot::new(ask.slot), first);
            program.leases().unwrap().set_leased(&ask.key, Some(leases)).unwrap();
            model.set_leased(&ask.key, Some(leases));
        }
        for key in &self.0 {
            if random.u8(0..8) == 0 {
                let leases = random.bool().then_some(KeyLeases::ELSEWHERE);
                program.leases().unwrap().set_leased(key, leases).unwrap();
                model.set_leased(key, leases);
            }
        }
        count as u64
    }
}

/// The program and the model; in every second sequence, sources have their buckets in lines.
fn both(seed: u64) -> (Program, Model) {
    const ROOM: u32 = 1 << 16;
    let source_store = SOURCE_STORES[usize::from(seed.is_multiple_of(2))];
    let model = match source_store {
        SourceTable::Hash => Model::new(),
        SourceTable::Lines => Model::with_lines(ROOM, ROOM, SEED),
    };
    let mut program = Program::load_in(source_store, ROOM, 1024).unwrap();
    program.among_nodes();
    (program, model)
}

/// Confirms the rule set on trial until `end`, or takes it back in one of two ways.
fn end_trial(random: &mut Rng, now: u64, end: u64, (program, model): (&mut Program, &mut Model)) {
    if end > now && random.bool() {
        program.confirm(Ticks::from_nanos(now)).unwrap();
        model.confirm();
    } else if random.bool() {
        program.revert().unwrap();
        model.revert(Ticks::from_nanos(now));
    } else {
        // A start takes back what nobody can confirm any more.
        program.restart().unwrap();
        // As of its end, which was written when it began.
        model.revert(Ticks::from_nanos(end));
    }
}

/// The hook that a frame comes to: [`frames::hook`].
type At = Option<(Direction, Option<Segments>)>;

fn judge(model: &mut Model, frame: &[u8], hook: At, now: Ticks) -> Outcome {
    match hook {
        None => model.judge(frame, now),
        Some((direction, segments)) => {
            let packet = Packet::at_tc(Framing::Ethernet, frame, direction, segments, 1);
            model.judge_packet(&packet, now)
        }
    }
}

/// The verdict on a frame, and the instant at which it departs, in nanoseconds, if it waits.
fn run_at(program: &mut Program, frame: &[u8], hook: At) -> (Verdict, Option<u64>) {
    let Some((direction, segments)) = hook else {
        return (program.run(frame, 1).unwrap(), None);
    };
    let run = program
        .run_at_tc(frame, direction, segments)
        .map_err(|error| format!("{error:?} of {segments:?} {frame:02x?}"))
        .unwrap();
    (run.way.map(Way::verdict).unwrap(), run.departure)
}

fn run(seed: u64, steps: u32, met: &mut Met) {
    let mut random = Rng::with_seed(seed);
    let mut rules = Rules::new(seed);
    let (mut program, mut model) = both(seed);
    let mut now = 1_000_000_000u64 + 30 * 86_400_000_000_000;
    let mut next = 0;
    let mut file = String::new();
    // When the rule set on trial ends, if one is.
    let mut trial: Option<u64> = None;
    let mut asked_keys = AskedKeys::default();
    for step in 0..steps {
        if step == next {
            next += random.u32(CHANGE / 4..=CHANGE);
            let context = format!("seed {seed} step {step}\n{file}");
            let begun = Instant::now();
            compare_all(&mut program, &model, &context);
            met.comparisons += begun.elapsed();
            let begun = Instant::now();
            if let Some(end) = trial.take() {
                end_trial(&mut random, now, end, (&mut program, &mut model));
                compare_all(&mut program, &model, &context);
                assert_same_rules(program.installed(), model.installed(), &context);
            }
            if random.u8(0..40) == 0 {
                program.restart().unwrap();
                assert_same_rules(program.installed(), model.installed(), &context);
                met.restarts += 1;
            }
            set_clocks(&mut random, now, &mut program, &mut model);
            rules.change();
            file = rules.file();
            let set = rule_set(&file).map_err(|error| format!("{error}\n{file}")).unwrap();
            let at = Ticks::from_nanos(now);
            let end = (random.u8(0..4) == 0).then(|| now + random.u64(0..20_000_000_000));
            let applied = match end.map(Ticks::from_nanos) {
                Some(end) => program.apply_on_trial(&set, end),
                None => program.apply(&set),
            };
            if let Ok(plan) = applied {
                match end.map(Ticks::from_nanos) {
                    Some(end) => {
                        model.commit_on_trial(plan, end, at);
                    }
                    None => {
                        model.commit(plan, at);
                    }
                }
                trial = end;
                met.changes += 1;
            } else {
                // More tables than there are: the next change has fewer.
                met.refused += 1;
            }
            met.commits += begun.elapsed();
        }
        now = frames::advance(&mut random, now);
        if random.u8(0..16) == 0 {
            grant(&mut random, now, &mut program, &model);
            let context = format!("seed {seed} step {step}\n{file}");
            let both = (&mut program, &model);
            met.asks += asked_keys.answer(&mut random, now, both, &context);
        }
        let ticks = Ticks::from_nanos(now);
        let hook = frames::hook(&mut random);
        let direction = hook.map_or(Direction::In, |(direction, _)| direction);
        let frame = frames::frame(&mut random, direction);
        // The answer is asked for before the frame comes: it is compared with what becomes of the
        // frame, and a question that charged anything would be found by the comparison of
        // everything.
        let answer = (step % ASKED == 0)
            .then(|| met.asked.ask(program.reading(), &model, &frame, ticks))
            .transpose()
            .unwrap();
        // A test run at tc refuses frames that end in their IP header.
        let hook = hook.filter(|_| frame.len() >= 14 + 40);
        let begun = Instant::now();
        let expected = judge(&mut model, &frame, hook, ticks);
        met.model += begun.elapsed();
        // The question is about a frame at XDP.
        if let (Some(answer), None) = (answer, hook) {
            let became = (expected.reason, expected.rule, model.way());
            assert_eq!(answer, became, "seed {seed} step {step}\n{file}{frame:02x?}");
        }
        let expected = expected.reason;
        let begun = Instant::now();
        program.set_time(ticks).unwrap();
        let (verdict, departure) = run_at(&mut program, &frame, hook);
        met.departures += u64::from(departure.is_some_and(|departure| departure > now));
        met.kernel += begun.elapsed();
        let departs = hook.and(model.departure()).map(Ticks::as_nanos_rounded_up);
        assert!(
            (verdict, departure) == (expected.verdict(), departs),
            "seed {seed} step {step}: {verdict:?}, {departure:?} for {} at {hook:?}\n{file}\
             {frame:02x?}",
            expected.name()
        );
        // This clock goes backwards, which the kernel's does not: no packet may be before the end
        // again.
        if trial.is_some_and(|end| now >= end) {
            trial = None;
            program.revert().unwrap();
            model.revert(ticks);
            met.ended += 1;
        }
    }
    compare_all(&mut program, &model, &format!("seed {seed}, the end\n{file}"));
    for (sum, tally) in met.reasons.iter_mut().zip(model.reasons()) {
        *sum += tally.packets;
    }
}

fn run_all(seeds: std::ops::RangeInclusive<u64>, steps: u32) {
    require_root();
    let mut met = Met::default();
    for seed in seeds {
        run(seed, steps, &mut met);
    }
    for (reason, packets) in Reason::ALL.iter().zip(met.reasons) {
        eprintln!("{packets:9} {}", reason.name());
    }
    eprintln!(
        "{} changes, {} refused, {} restarts; kernel {:.1?}, model {:.1?}, changes {:.1?}, \
         comparisons {:.1?}",
        met.changes, met.refused, met.restarts, met.kernel, met.model, met.commits, met.comparisons
    );
    // The sequence met what it is for.
    for reason in [
        Reason::Conforming,
        Reason::OverLimit,
        Reason::Unlimited,
        Reason::Shadow,
        Reason::NoRule,
        Reason::Marked,
        Reason::Class,
        Reason::Blocked,
        Reason::Delayed,
    ] {
        let index = usize::try_from(reason.index()).unwrap();
        assert!(met.reasons[index] > 0, "no {}", reason.name());
    }
    eprintln!("{:?}", met.asked);
    assert!(met.asked.by_a_table > 0 && met.asked.passed > 0);
    assert!(met.asks > 100, "{} keys asked for leases", met.asks);
    assert!(met.departures > 10, "{} packets wait", met.departures);
    assert!(met.ended > 0, "no trial ended by itself");
    assert_eq!(met.reasons[Reason::Contended as usize], 0, "nobody is in the way here");
    assert_eq!(met.reasons[Reason::Untracked as usize], 0, "there is room for every key");
    assert!(met.refused < met.changes, "{} of {} refused", met.refused, met.changes);
}

/// Always the same sequences, so that a failure repeats. `LIMITER_STEPS` makes the sequences
/// longer, as the nightly run does, `LIMITER_SEED` begins with another one.
#[test]
fn kernel_and_model_agree_on_every_table_and_algorithm() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let steps = number("LIMITER_STEPS").unwrap_or(80_000);
    let first = number("LIMITER_SEED").unwrap_or(1);
    let seeds = first..=first + 4;
    run_all(seeds, u32::try_from(steps / 5).unwrap());
}
