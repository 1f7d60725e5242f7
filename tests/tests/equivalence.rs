//! One random sequence of frames, times and rule changes through the program in the kernel and
//! through the model on the host: equal verdicts, counters and buckets.

// Also on other kernels: 600 s each.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Count, ListEntry, Listed};
use limiter_datapath::SourceTable;
use limiter_decision::clock;
use limiter_model::Model;
use limiter_rules::model::Limits;
use limiter_rules::model::Quota;
use limiter_rules::{Path, Period, Rule, RuleSet, Selector, Terms, Unit};
use limiter_tests::asked::Asked;
use limiter_tests::packet::{Extension, Frame};
use limiter_tests::program::{Program, SEED, SOURCE_STORES};
use limiter_tests::root::require_root;

/// Steps of one run: with fewer, some do not meet what they are for.
const STEPS: u32 = 100_000;

/// Steps between two rule changes, and between two comparisons of everything.
const CHANGE: u32 = 500;

/// Of so many frames, one is asked about before it comes.
const ASKED: u32 = 16;

struct Random(fastrand::Rng);

impl Random {
    fn source_v4(&mut self) -> [u8; 4] {
        [192, 0, self.0.u8(2..4), self.0.u8(0..8)]
    }

    fn source_v6(&mut self) -> [u8; 16] {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        address[5] = self.0.u8(0..2);
        address[7] = self.0.u8(0..4);
        address[15] = self.0.u8(..);
        address
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut frame = if self.0.bool() {
            Frame::ipv4(self.source_v4(), [192, 0, 2, 254])
        } else {
            let mut frame = Frame::ipv6(self.source_v6(), [0xfd; 16]);
            if self.0.u8(..) < 40 {
                frame = frame.extension(Extension::HopByHop(0));
            }
            frame
        };
        for _ in 0..self.0.u8(0..6).saturating_sub(2) {
            frame = frame.vlan(self.0.u16(0..4096));
        }
        let mut frame = frame.payload(&vec![0; self.0.usize(0..1400)]).build();
        match self.0.u8(..) {
            // Broken in one byte of the headers, or cut.
            0..20 => {
                let at = self.0.usize(12..60.min(frame.len()));
                frame[at] = self.0.u8(..);
            }
            20..30 => frame.truncate(self.0.usize(14..70).min(frame.len())),
            _ => {}
        }
        frame
    }

    fn terms(&mut self) -> Terms {
        if self.0.u8(..) < 20 {
            return Terms::Unlimited;
        }
        let count = if self.0.u8(..) < 150 { Count::Packets } else { Count::Bytes };
        let (requests_per_unit, burst) = match count {
            Count::Packets | Count::Syns | Count::Flows => {
                (self.0.u64(1..5000), self.0.u64(1..200))
            }
            Count::Bytes => (self.0.u64(1000..5_000_000), self.0.u64(1522..200_000)),
        };
        let unit = Unit::ALL[self.0.usize(..Unit::ALL.len())];
        let rate = Quota::new(count, requests_per_unit, Period::one(unit)).with_burst(burst);
        Limits { shadow: self.0.u8(..) < 40, ..Limits::new(rate) }.into()
    }

    fn rules(&mut self) -> RuleSet {
        let mut rules = Vec::new();
        let mut add = |random: &mut Self, selector: &str| {
            if random.0.bool() {
                let selector = match selector {
                    "*" => Selector::Every,
                    text => Selector::prefix(text.parse().unwrap()).unwrap(),
                };
                rules.push(Rule::new(Path::of_source(&selector), random.terms()));
            }
        };
        for selector in [
            "*",
            "0.0.0.0/0",
            "192.0.2.0/24",
            "192.0.2.0/30",
            "192.0.2.1/32",
            "192.0.2.5/32",
            "192.0.3.0/24",
            "::/0",
            "2001:db8::/32",
            "2001:db8:1::/48",
            "2001:db8:0:2::/64",
        ] {
            add(self, selector);
        }
        RuleSet::of(rules)
    }

    /// Changes of the lists: an entry to put, or one to take away.
    fn lists(&mut self, now: u64) -> Vec<(Selector, Option<ListEntry>)> {
        let prefixes = [
            "192.0.2.3/32",
            "192.0.3.4/32",
            "192.0.2.0/29",
            "192.0.3.0/30",
            "2001:db8:0:1::/64",
            "2001:db8:1::/48",
        ];
        let mut changes = Vec::new();
        for prefix in prefixes {
            let selector = Selector::prefix(prefix.parse().unwrap()).unwrap();
            match self.0.u8(0..8) {
                0 => {
                    let list =
                        [Listed::Allow, Listed::Deny, Listed::Management][self.0.usize(0..3)];
                    let end = self
                        .0
                        .bool()
                        .then(|| Ticks::from_nanos(now + self.0.u64(0..10u64.pow(10))));
                    changes.push((selector, Some(ListEntry::new(list, end))));
                }
                1..4 => changes.push((selector, None)),
                _ => {}
            }
        }
        changes
    }

    /// Mostly packets close together, sometimes hours, sometimes backwards.
    fn advance(&mut self, now: u64) -> u64 {
        match self.0.u8(..) {
            0..100 => now,
            100..200 => now + self.0.u64(0..100_000),
            200..245 => now + self.0.u64(0..100_000_000),
            245..250 => now + self.0.u64(0..3_600_000_000_000),
            _ => now.saturating_sub(self.0.u64(0..1_000_000)),
        }
    }
}

fn compare_all(program: &Program, model: &Model, context: &str) {
    let kernel = program.reasons().unwrap();
    for (reason, (a, b)) in Reason::ALL.iter().zip(kernel.iter().zip(&model.reasons())) {
        assert_eq!(a, b, "{context}: {}", reason.name());
    }
    let v4 = (2..4).flat_map(|c| (0..8).map(move |d| Source::V4([192, 0, c, d])));
    let v6 = (0..2).flat_map(|b| (0..4).map(move |d| Source::V6([0x20, 1, 0xd, 0xb8, 0, b, 0, d])));
    for source in v4.chain(v6) {
        let kernel = program.bucket(source).unwrap();
        assert_eq!(kernel, model.bucket(&source), "{context}: {source:?}");
    }
}

fn reasons_of(model: &Model, reason: Reason) -> u64 {
    model.reasons()[reason.index() as usize].packets
}

const ROOM: u32 = 4096;

fn run(source_store: SourceTable, seed: u64) {
    let mut random = Random(fastrand::Rng::with_seed(seed));
    let mut program = Program::load_in(source_store, ROOM, 128).unwrap();
    let model = match source_store {
        SourceTable::Hash => Model::new(),
        SourceTable::Lines => Model::with_lines(ROOM, ROOM, SEED),
    };
    // The program reads the clock for each packet here, and the model uses old readings.
    let lag = random.0.u64(0..=clock::SLACK.get());
    let mut model = model.with_old_readings(Ticks::new(lag));
    let mut now = 1_000_000_000u64;
    let mut asked = Asked::default();
    for step in 0..STEPS {
        let context = format!("{source_store:?} seed {seed} step {step}");
        if step % CHANGE == 0 {
            compare_all(&program, &model, &context);
            for (selector, entry) in random.lists(now) {
                if let Some(entry) = entry {
                    program.list(&selector, entry).unwrap();
                    model.list(&selector, entry);
                } else {
                    program.unlist(&selector).unwrap();
                    model.unlist(&selector);
                }
            }
            program.set_time(Ticks::from_nanos(now)).unwrap();
            let plan = program.apply(&random.rules()).unwrap();
            model.commit(plan, Ticks::from_nanos(now));
            for rule in program.installed().rules.values() {
                let number = rule.limit.rule;
                let kernel = program.rule_counters(number).unwrap();
                assert_eq!(kernel, model.rule_counters(number), "{context}: rule {number}");
            }
        }
        now = random.advance(now);
        let ticks = Ticks::from_nanos(now);
        program.set_time(ticks).unwrap();
        let frame = random.frame();
        // A question that charged anything would be found by the comparison of everything.
        let answer = (step % ASKED == 0)
            .then(|| asked.ask(program.reading(), &model, &frame, ticks))
            .transpose()
            .unwrap();
        let became = model.judge(&frame, ticks);
        if let Some(answer) = answer {
            assert_eq!(
                answer,
                (became.reason, became.rule, model.way()),
                "{context}: {frame:02x?}"
            );
        }
        let expected = became.reason.verdict();
        assert_eq!(program.run(&frame, 1).unwrap(), expected, "{context}: {frame:02x?}");
    }
    compare_all(&program, &model, "end");
    let contended = reasons_of(&model, Reason::Contended);
    assert_eq!(contended, 0, "nobody is in the way here");
    assert!(asked.by_the_source_table > 0 && asked.before_the_rules > 0, "{asked:?}");
    let reasons = model.reasons();
    // The sequence met what it is for.
    for reason in [
        Reason::Conforming,
        Reason::OverLimit,
        Reason::Unlimited,
        Reason::Shadow,
        Reason::Allowed,
        Reason::Denied,
        Reason::NoRule,
        Reason::NotIp,
        Reason::DeepVlan,
        Reason::Truncated,
        Reason::Malformed,
    ] {
        assert!(
            reasons[reason.index() as usize].packets > 0,
            "no {} in seed {seed}",
            reason.name()
        );
    }
}

/// A sequence for each store, always the same ones, so that a failure repeats. With `LIMITER_STEPS`
/// there are more or fewer, with as many steps at least: the nightly run has 40.
#[test]
fn kernel_and_model_agree_step_by_step() {
    require_root();
    let steps = std::env::var("LIMITER_STEPS").ok().and_then(|text| text.parse::<u64>().ok());
    let runs = steps.map_or(2, |steps| steps.div_ceil(u64::from(STEPS)).max(1));
    // Every second one over lines.
    for seed in 1..=runs {
        run(SOURCE_STORES[usize::from(seed.is_multiple_of(2))], seed);
    }
}
