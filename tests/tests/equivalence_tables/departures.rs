//! Random rules whose packets wait: the kernel and the model hold each packet back until the same
//! nanosecond.

use fastrand::Rng;
use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_tests::program::rule_set;
use limiter_tests::root::require_root;

use super::rules::Rules;
use super::{both, compare_all, frames, judge, run_at};

/// Packets of a sequence, and between two changes of its rules.
const STEPS: u32 = 4_000;
const CHANGE: u32 = 200;

fn run(seed: u64) -> u32 {
    let mut random = Rng::with_seed(seed);
    let mut rules = Rules::new(seed);
    let (mut program, mut model) = both(seed);
    let mut now = 1_000_000_000_000;
    let (mut file, mut waited) = (String::new(), 0);
    for step in 0..STEPS {
        if step % CHANGE == 0 {
            file = rules.that_wait();
            let set = rule_set(&file).map_err(|error| format!("{error}\n{file}")).unwrap();
            program.set_time(Ticks::from_nanos(now)).unwrap();
            let plan = program.apply(&set).map_err(|error| format!("{error}\n{file}")).unwrap();
            model.commit(plan, Ticks::from_nanos(now));
        }
        now += [0, random.u64(0..2_000_000), random.u64(0..100_000_000)][random.usize(0..3)];
        let segments = frames::hook(&mut random).and_then(|(_, segments)| segments);
        let frame = frames::frame(&mut random, Direction::Out);
        // A test run at tc refuses frames that end in their IP header.
        if frame.len() < 14 + 40 {
            continue;
        }
        let hook = Some((Direction::Out, segments));
        let outcome = judge(&mut model, &frame, hook, Ticks::from_nanos(now));
        program.set_time(Ticks::from_nanos(now)).unwrap();
        let (verdict, departure) = run_at(&mut program, &frame, hook);
        let context = format!("seed {seed} step {step}: at {hook:?}\n{file}{frame:02x?}");
        assert_eq!(verdict, outcome.reason.verdict(), "{context}");
        let expected = model.departure().map(Ticks::as_nanos_rounded_up);
        assert_eq!(departure, expected, "{context}");
        let waits = departure.is_some_and(|departure| departure > now);
        // No rule marks here, so what waits is delayed, in a class as elsewhere.
        assert_eq!(waits, outcome.reason == Reason::Delayed, "{context}");
        waited += u32::from(waits);
    }
    compare_all(&mut program, &model, &format!("seed {seed}\n{file}"));
    waited
}

#[test]
fn kernel_and_model_agree_on_departures() {
    require_root();
    let waited: u32 = (1..=4).map(run).sum();
    assert!(waited > 300, "{waited} packets wait");
}
