//! A wall clock that jumps while the program runs. Setting the machine's is not for a test: the
//! program's offset from one clock to the other is what the daemon sets every second.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use fastrand::Rng;
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_common::window::WallOffset;
use limiter_tests::packet::Frame;
use limiter_tests::program::Program;
use limiter_tests::root::require_root;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_000 * SECOND;

/// 2026-07-22 13:14:15 UTC, when the monotonic clock shows [`START`].
const WALL: u64 = 1_784_726_055 * SECOND;

/// Packets, a quarter of a second apart: ten minutes of them.
const PACKETS: u64 = 2400;

fn program(algorithm: &str) -> Program {
    require_root();
    let mut program = Program::load(256, 64).unwrap();
    program
        .apply_file(&format!(
            "descriptors: [{{key: remote_address, rate_limit: {{unit: minute, requests_per_unit: \
             9, algorithm: {algorithm}}}}}]"
        ))
        .unwrap();
    program
}

/// The verdicts on packets of one source. `wall` has the offset before a packet by its number.
fn verdicts(program: &mut Program, mut wall: impl FnMut(u64) -> WallOffset) -> Vec<bool> {
    let frame = Frame::ipv4([203, 0, 113, 7], [192, 0, 2, 254]).build();
    let mut verdicts = Vec::new();
    for number in 0..PACKETS {
        program.set_wall_offset(wall(number)).unwrap();
        program.set_time(Ticks::from_nanos(START + number * SECOND / 4)).unwrap();
        verdicts.push(program.run(&frame, 1).unwrap() == Verdict::Pass);
    }
    verdicts
}

fn set(wall: u64) -> WallOffset {
    WallOffset::of_clocks(wall, START)
}

/// Only the fixed window depends on the wall clock.
#[test]
fn no_other_algorithm_moves_with_the_wall_clock() {
    for algorithm in
        ["token_bucket", "leaky_bucket", "sliding_log", "sliding_counter", "sliding_slots"]
    {
        let still = verdicts(&mut program(algorithm), |_| set(WALL));
        let passed = still.iter().filter(|passed| **passed).count();
        assert!((50..200).contains(&passed), "{algorithm}: {passed} passed");
        let mut random = Rng::with_seed(7);
        let jumping = verdicts(&mut program(algorithm), |_| WallOffset::new(random.u64(..)));
        assert!(still == jumping, "{algorithm} moves with the wall clock");
    }
}

/// Ten minutes of packets touch eleven windows of a minute. A jump grants at most one more.
#[test]
fn a_jump_grants_at_most_one_window() {
    let windows = 11;
    let hour = 3600 * SECOND;
    for (what, jumps) in [
        ("none", vec![]),
        ("forward", vec![(100, WALL + hour)]),
        ("back", vec![(100, WALL - hour)]),
        ("back and forth", vec![(100, WALL - hour), (200, WALL), (300, WALL + hour), (400, WALL)]),
        (
            "a little, again and again",
            (1..40).map(|n| (n * 50, WALL + (n % 2) * 100_000_000)).collect(),
        ),
    ] {
        let mut offset = set(WALL);
        let verdicts = verdicts(&mut program("fixed_window"), |number| {
            let jump = jumps.iter().find(|(at, _)| *at == number);
            offset = jump.map_or(offset, |(_, wall)| set(*wall));
            offset
        });
        let passed = verdicts.iter().filter(|passed| **passed).count();
        let most = 9 * (windows + jumps.len());
        assert!(passed <= most, "{what}: {passed} passed, {most} may");
        // A clock that is set back by no more than a window keeps nobody out for longer than that.
        if jumps.is_empty() {
            assert_eq!(passed, 9 * windows);
        }
    }
}
