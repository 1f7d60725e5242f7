//! Random rule files and requests, against a model that shares no code with the decision: exact
//! integers, and what the pages say of each algorithm and field.

mod bucket;
mod model;
mod rules;

use std::fmt::{Debug, Write as _};
use std::io::Cursor;

use limiter_requests::{
    Answer, Asked, Descriptor, Detail, GivenBack, Limiter, Moment, Refused, Snapshot,
};
use limiter_rules::file::requests::{RequestLimit, RequestTerms};
use limiter_rules::model::Meter;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestError, TestRunner};

use self::bucket::{Algorithm, DAY, Left, Limit, SECOND, Time};
use self::model::{Model, Part, Status};
use self::rules::{File, KEYS, Level, Value, values};
use crate::support::{MONDAY, file, limiter};

/// Time until the next step.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Nanos(u64),
    /// To the moment that the last answer named, and so many nanoseconds more than one less.
    Due(u64),
    /// The same to the next multiple of so many nanoseconds on the wall clock.
    Border(u64, u64),
}

/// A descriptor: the path of a rule, what its values are, hits of its own, and amount and unit of a
/// limit of its own.
type Pick = (usize, [usize; 3], u8, Option<u64>, Option<(u64, usize)>);

#[derive(Clone, Debug)]
enum Step {
    Ask(Vec<Pick>, u64),
    /// With the longest wait.
    Reserve(Vec<Pick>, u64, u64),
    GiveBack(usize),
    Restart,
    Reload,
    Sweep,
}

fn gap() -> impl Strategy<Value = Gap> {
    let nanos = select(vec![0, 0, 0, 1, 999_999, 50_000_000, 333_333_333, SECOND, 7 * SECOND]);
    let long = select(vec![60 * SECOND, 3600 * SECOND, DAY, 8 * DAY, 40 * DAY]);
    prop_oneof![
        8 => nanos.prop_map(Gap::Nanos),
        1 => long.prop_map(Gap::Nanos),
        6 => (0..3_u64).prop_map(Gap::Due),
        2 => (select(vec![SECOND, 60 * SECOND, DAY]), 0..3_u64)
            .prop_map(|(every, more)| Gap::Border(every, more)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let hits = || select(vec![1_u64, 1, 1, 1, 2, 3, 9]);
    let own = prop_oneof![4 => Just(None), 1 => hits().prop_map(Some)];
    let brought = prop_oneof![6 => Just(None), 1 => (0..5_u64, 0..4_usize).prop_map(Some)];
    let pick = (0..64_usize, [0..64_usize, 0..64_usize, 0..64_usize], 0..12_u8, own, brought);
    let parts = || prop::collection::vec(pick.clone(), 1..=3);
    let longest = select(vec![0, SECOND, 60 * SECOND, DAY, 60 * DAY]);
    prop_oneof![
        20 => (parts(), hits()).prop_map(|(parts, hits)| Step::Ask(parts, hits)),
        10 => (parts(), hits(), longest)
            .prop_map(|(parts, hits, longest)| Step::Reserve(parts, hits, longest)),
        4 => (0..8_usize).prop_map(Step::GiveBack),
        1 => Just(Step::Restart),
        1 => Just(Step::Reload),
        1 => Just(Step::Sweep),
    ]
}

/// A value that mostly falls under a level.
fn value(level: &Level, pick: usize) -> &'static str {
    let (all, rarely) = (values(level.0), pick.is_multiple_of(4));
    match level.1 {
        Value::Exact(value) if !value.contains('/') && !rarely => value,
        Value::List(both) if !rarely => both[pick % 2],
        _ => all[pick % all.len()],
    }
}

fn part(file: &File, (rule, picks, odd, hits, brought): Pick) -> Part {
    let path = &file.rules[rule % file.rules.len()].path;
    let mut entries: Vec<_> =
        path.iter().zip(picks).map(|(level, pick)| (level.0, value(level, pick))).collect();
    match odd {
        0 => entries.push((KEYS[picks[0] % 3], "x")),
        1 if entries.len() > 1 => {
            entries.pop();
        }
        _ => {}
    }
    let brought = brought.map(|(amount, unit)| {
        let algorithm = Algorithm::Token { burst: amount };
        Limit { amount, unit, multiplier: 1, algorithm, ceiling: None }
    });
    Part { entries, hits, brought }
}

/// A limit as a request brings it.
fn written(limit: Limit) -> RequestLimit {
    // 0 has no limit in a file.
    let amount = limit.amount.max(1);
    let text = Limit { amount, algorithm: Algorithm::Token { burst: amount }, ..limit };
    let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{text}}}}}]\n");
    let rules = file(&text);
    let RequestTerms::Limits(limits) = &rules.rules()[0].1.terms else { panic!("{text}") };
    let mut written = limits[0].written;
    if let (0, Meter::TokenBucket(rate)) = (limit.amount, &mut written.meter) {
        (rate.requests_per_unit, rate.burst) = (0, 0);
    }
    written
}

/// What is compared of an answer.
fn shown(answer: &Answer) -> (bool, Vec<Status>) {
    let status = |status: &limiter_requests::Status| {
        let left = |left: &limiter_requests::Left| Left {
            remaining: left.remaining,
            reset: left.reset,
            wait: left.wait,
        };
        Status {
            over: status.over,
            over_soft: status.over_soft,
            unlimited: status.unlimited,
            left: status.limits.iter().map(|(_, one)| left(one)).collect(),
        }
    };
    (answer.over, answer.statuses.iter().map(status).collect())
}

struct Run {
    model: Model,
    limiter: Limiter,
    text: String,
    at: Time,
    due: u64,
    /// Names of reservations, as the model counts them.
    ids: Vec<String>,
    /// What was done, for whom reads of a failure.
    done: String,
}

fn moment(at: Time) -> Moment {
    Moment::of_nanos(at.boot, at.wall)
}

impl Run {
    fn new(rules: File) -> Self {
        let text = rules.to_string();
        let at = Time { boot: 3600 * SECOND + 77, wall: MONDAY + 123_456_789 };
        let limiter = limiter(&text, 10_000);
        Self {
            model: Model::new(rules),
            limiter,
            text,
            at,
            due: 0,
            ids: Vec::new(),
            done: String::new(),
        }
    }

    fn go_on(&mut self, gap: Gap) {
        let to = |every: u64, more: u64| (every - self.at.wall % every + more).saturating_sub(1);
        let nanos = match gap {
            Gap::Nanos(nanos) => nanos,
            Gap::Due(more) => (self.due + more).saturating_sub(self.at.boot + 1),
            Gap::Border(every, more) => to(every, more),
        };
        self.at = self.at.plus(nanos);
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let at = self.at;
        let _ = match step {
            Step::Ask(..) | Step::Reserve(..) => Ok(()),
            _ => writeln!(self.done, "at {} ns: {step:?}", at.boot),
        };
        match step {
            Step::Ask(picks, hits) => self.ask(picks, *hits, None)?,
            Step::Reserve(picks, hits, longest) => self.ask(picks, *hits, Some(*longest))?,
            Step::GiveBack(back) => {
                let Some(number) = self.ids.len().checked_sub(back + 1) else { return Ok(()) };
                let expected = match self.model.give_back(number, at) {
                    None => GivenBack::Unknown,
                    Some(true) => GivenBack::Returned,
                    Some(false) => GivenBack::Kept,
                };
                let got = self.limiter.give_back(&self.ids[number], &moment(at));
                self.same("given back", &expected, &got)?;
            }
            Step::Restart => {
                let mut bytes = Vec::new();
                self.limiter.save(&mut bytes, &moment(at), Some("a")).unwrap();
                let snapshot = Snapshot::open(Cursor::new(&bytes)).unwrap();
                self.limiter = Limiter::of(10_000, &snapshot);
                self.reload(at);
                let loaded = self.limiter.load(snapshot, &moment(at), Some("a")).unwrap();
                prop_assert!(loaded.same_clock && loaded.no_room == 0);
                self.model.forget();
            }
            Step::Reload => self.reload(at),
            Step::Sweep => self.limiter.sweep(0, 1, &moment(at)),
        }
        Ok(())
    }

    fn reload(&self, at: Time) {
        self.limiter.apply(&[("r.yaml".to_owned(), file(&self.text))], &moment(at)).unwrap();
    }

    /// Fails with all that was done, if something is not as the model says.
    fn same<T: Debug + PartialEq>(
        &self,
        what: &str,
        expected: &T,
        got: &T,
    ) -> Result<(), TestCaseError> {
        let Self { text, done, .. } = self;
        let why = format!("{text}\n{done}{what}: expected {expected:#?}\ngot {got:#?}");
        if expected == got { Ok(()) } else { Err(TestCaseError::fail(why)) }
    }

    /// Asks whether a request passes, or when.
    fn ask(
        &mut self,
        picks: &[Pick],
        hits: u64,
        longest: Option<u64>,
    ) -> Result<(), TestCaseError> {
        let parts: Vec<_> = picks.iter().map(|pick| part(&self.model.file, *pick)).collect();
        let kind = longest.map_or_else(|| "ask".to_owned(), |most| format!("reserve {most} ns"));
        let _ = writeln!(self.done, "at {} ns: {kind}, {hits} hits:", self.at.boot);
        for Part { entries, hits, brought } in &parts {
            let _ = writeln!(self.done, "  {entries:?} {hits:?} {brought:?}");
        }
        let descriptors = parts.iter().map(|part| Descriptor {
            entries: part.entries[..].into(),
            hits: part.hits,
            limit: part.brought.map(written),
        });
        let asked = Asked { domain: "d", descriptors: descriptors.collect(), hits };
        let (limiter, now) = (&self.limiter, moment(self.at));
        let rules = limiter.rules();
        let twice = self.model.meets_twice(&parts, hits);
        let (expected, answer) = if let Some(longest) = longest {
            let got = match limiter.reserve(&rules, &asked, &now, longest) {
                Ok(reserved) => reserved,
                Err(refused) => {
                    let expected = self.model.says_no_time(&parts, hits).map(Refused::NoRate);
                    return self.same("refused", &expected, &Some(refused));
                }
            };
            let expected = self.model.reserve(&parts, hits, self.at, Some(longest));
            let of_model = (expected.wait, expected.needed, expected.held);
            self.ids.extend(got.id.clone());
            self.same("wait", &of_model, &(got.wait, got.needed, got.id.is_some()))?;
            (expected, got.answer)
        } else {
            let answer = limiter.decide(&rules, &asked, &now, Detail::Left).unwrap();
            (self.model.decide(&parts, hits, self.at), answer)
        };
        let waits = expected.statuses.iter().flat_map(|status| &status.left);
        let wait = waits.filter_map(|left| left.wait).max();
        self.due = self.at.boot + expected.needed.max(wait).unwrap_or(0);
        let (over, statuses) = shown(&answer);
        self.same("over", &expected.over, &over)?;
        if !twice {
            self.same("statuses", &expected.statuses, &statuses)?;
        }
        for (status, own) in answer.statuses.iter().zip(&statuses) {
            let trial = status.rule.as_ref().is_some_and(|rule| rule.written.shadow);
            if let (Some((_, nearest)), false) = (&status.nearest, trial || own.over) {
                let least = own.left.iter().map(|left| left.remaining).min();
                self.same("nearest", &least, &Some(nearest.remaining))?;
            }
        }
        Ok(())
    }
}

/// Answers to random requests under random rule files, waits, what is given back, restarts and
/// reloads are those of a model that shares no code.
#[test]
fn every_answer_is_that_of_the_model() {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    // Each is many requests.
    config.cases /= 4;
    let steps = prop::collection::vec((gap(), step()), 1..60);
    let ran = TestRunner::new(config).run(&(rules::file(), steps), |(rules, steps)| {
        let mut run = Run::new(rules);
        steps.iter().try_for_each(|(gap, step)| {
            run.go_on(*gap);
            run.step(step)
        })
    });
    match ran {
        // The least file and steps that still fail.
        Err(TestError::Fail(why, _)) => panic!("{why}"),
        other => other.unwrap(),
    }
}
