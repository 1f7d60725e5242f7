//! The Lua scripts on a real server against the store's model: same inputs, same answers.

use fastrand::Rng;
use limiter_cluster::change::{Change, List};
use limiter_cluster::membership::{Heartbeat, Membership, Met, Presence, Sent};
use limiter_cluster::memory::Memory;
use limiter_cluster::redis::{LEASE, NODE, QUEUE, RedisStore, Scripts, WINDOW};
use limiter_cluster::store::{Ask, Batch, Store as _, WindowAsk, WindowBatch};
use limiter_sharing::account::{Central, Demand, Report};
use limiter_sharing::rate::Rate;
use limiter_sharing::window::{Back, LOG_MAX, Window, WindowDemand, WindowKind};

use crate::server::{Admin, Server, runtime};

const MINUTE: u64 = 60_000_000;
const WEEK: u64 = 604_800_000_000;

/// The shipped scripts but for two things: they read the time from a key, and keys are kept for so
/// long that they do not vanish while that time stands still.
fn scripts() -> Scripts {
    let changed = |text: &str, from, to| {
        let new = text.replace(from, to);
        assert_ne!(new, text);
        new
    };
    let clock =
        |text| changed(text, "redis.call('TIME')", "redis.call('HMGET', 'clock', 's', 'u')");
    let kept = |text| changed(&clock(text), "'PX', exact(", "'PX', exact(1e12 + ");
    Scripts { lease: kept(LEASE), window: kept(WINDOW), node: clock(NODE), queue: clock(QUEUE) }
}

fn store(server: &Server) -> RedisStore {
    let mut settings = server.settings();
    settings.scripts = scripts();
    settings.timeout = std::time::Duration::from_secs(20);
    RedisStore::new(settings).expect("a good prefix")
}

async fn set_clock(admin: &mut Admin, now: u64) {
    let (seconds, micros) = ((now / 1_000_000).to_string(), (now % 1_000_000).to_string());
    let _new: i64 = admin.ask(&["HSET", "clock", "s", &seconds, "u", &micros]).await;
}

/// Small, middle and huge with the same chance, 0 to `most`.
fn number(rng: &mut Rng, most: u64) -> u64 {
    match rng.u32(..4) {
        0 => rng.u64(..=most.min(5)),
        1 => most - rng.u64(..=most.min(5)),
        _ => rng.u64(..=most) >> rng.u32(..=most.max(1).ilog2()),
    }
}

/// From 1 a week to 100 Gbit/s in bytes, and ratios without a common divisor.
fn centrals(rng: &mut Rng) -> Vec<Central> {
    let mut rates = vec![
        (1, WEEK, 3, 1),
        (5, WEEK / 7, 5, 1),
        (1000, 1_000_000, 1000, 1),
        (12_500_000_000, 1_000_000, 12_500_000_000, 9018),
        (999_999_937, 1_000_000, 1 << 30, 1522),
        (1_000_003, WEEK, 50_000, 1),
        (7, 1_000_000, 10_000, 1),
    ];
    for _ in 0..6 {
        let (units, micros) = (number(rng, 1 << 40) + 1, number(rng, 1 << 39) + 1);
        let rate = Rate::new(units, micros).expect("in range");
        let burst = number(rng, 1 << 40).min(rate.units_in(1 << 45)).max(1);
        rates.push((units, micros, burst, number(rng, 9018).clamp(1, burst)));
    }
    let central = |(units, micros, burst, largest)| Central {
        rate: Rate::new(units, micros).expect("in range"),
        burst,
        epoch: rng.u64(300_000..60_000_000),
        largest,
    };
    rates.into_iter().map(central).collect()
}

#[test]
fn the_lease_script_and_its_model_give_the_same_answers() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    for seed in 0..6 {
        let mut rng = Rng::with_seed(seed);
        let centrals = centrals(&mut rng);
        let mut epochs = vec![0; centrals.len()];
        let (mut memory, store) = (Memory::default(), store(&server));
        let mut now = 1_795_000_000_000_000 + rng.u64(..WEEK);
        let mut cursor = 0;
        let mut granted = 0;
        runtime.block_on(async {
            let _flushed: String = admin.ask(&["FLUSHALL"]).await;
            for step in 0..400 {
                now += match rng.u32(..10) {
                    0 => 0,
                    1 => rng.u64(..WEEK),
                    2 | 3 => rng.u64(..100_000_000),
                    _ => rng.u64(..2_000_000),
                };
                if rng.u32(..40) == 0 {
                    now -= number(&mut rng, 2 * WEEK);
                }
                let mut asks = Vec::new();
                for (index, central) in centrals.iter().enumerate() {
                    if rng.bool() {
                        continue;
                    }
                    let report = |rng: &mut Rng| Report {
                        used: number(rng, central.burst),
                        back: number(rng, central.burst),
                    };
                    let demand = Demand {
                        epoch: (epochs[index] + rng.u64(..4)).saturating_sub(rng.u64(..3)),
                        latest: report(&mut rng),
                        before: report(&mut rng),
                        owed: if rng.u32(..5) == 0 {
                            number(&mut rng, 2 * central.burst)
                        } else {
                            0
                        },
                        want: if rng.bool() { number(&mut rng, 2 * central.burst) } else { 0 },
                    };
                    let name = [b"r/".as_slice(), &[200, b'0' + index as u8]].concat().into();
                    asks.push((index, Ask { name, central: *central, demand }));
                }
                let hot_since = [None, Some(cursor), Some(0), Some(u64::MAX)][rng.usize(..4)];
                let (indexes, asks): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
                let deadline = a_deadline(&mut rng, now);
                let batch = Batch { shard: 7, hot_since, deadline, asks };
                set_clock(&mut admin, now).await;
                let reported = store.exchange(&batch).await.expect("the server answers");
                if deadline.is_some_and(|deadline| now > deadline) {
                    assert!(
                        reported.answers.iter().flatten().all(|answer| answer.grant == 0),
                        "{batch:?}"
                    );
                }
                let expected = memory.exchange_at(now, &batch).expect("a good batch");
                assert_eq!(reported, expected, "seed {seed}, step {step}, at {now}: {batch:?}");
                for (index, answer) in indexes.iter().zip(reported.answers.iter().flatten()) {
                    epochs[*index] = answer.epoch;
                    granted += u64::from(answer.grant > 0);
                }
                if !reported.hot.is_empty() {
                    cursor = reported.now;
                }
            }
        });
        assert!(granted > 200, "a run in which little is granted shows little: {granted}");
    }
}

/// A deadline that is mostly not there, and otherwise near.
fn a_deadline(rng: &mut Rng, now: u64) -> Option<u64> {
    [None, None, Some(now - 1), Some(now), Some(now + 1)][rng.usize(..5)]
}

fn windows(rng: &mut Rng) -> Vec<Window> {
    let mut windows = Vec::new();
    for kind in [WindowKind::Fixed, WindowKind::SlidingCounter, WindowKind::SlidingLog] {
        for (length, quota) in [
            (WEEK / 7, 5),
            (MINUTE, 10),
            (WEEK, 1 << 40),
            (number(rng, 8 * WEEK).max(MINUTE), number(rng, 1 << 40).max(1)),
        ] {
            let quota = if kind == WindowKind::SlidingLog { quota.min(LOG_MAX) } else { quota };
            let largest = rng.u64(1..=quota.min(1522));
            windows.push(Window { kind, length, quota, largest, life: 800_000, lease_cap: 250 });
        }
    }
    windows
}

#[test]
fn the_window_script_and_its_model_give_the_same_answers() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    for seed in 0..4 {
        let mut rng = Rng::with_seed(seed);
        let windows = windows(&mut rng);
        // The latest epochs of each.
        let mut epochs: Vec<Vec<u64>> = vec![vec![0]; windows.len()];
        let (mut memory, store) = (Memory::default(), store(&server));
        let mut now = 1_795_000_000_000_000 + rng.u64(..WEEK);
        runtime.block_on(async {
            let _flushed: String = admin.ask(&["FLUSHALL"]).await;
            for step in 0..300 {
                now += [0, rng.u64(..1_000_000), rng.u64(..2 * MINUTE), rng.u64(..WEEK)]
                    [rng.usize(..4)];
                if rng.u32(..40) == 0 {
                    now -= number(&mut rng, 2 * WEEK);
                }
                let mut ask = |(index, window): (usize, &Window)| {
                    let backs = (0..rng.usize(..4)).map(|_| {
                        let of = rng.choice(&epochs[index]).expect("one at least");
                        Back { epoch: *of, units: number(&mut rng, window.quota) }
                    });
                    WindowAsk {
                        name: [b"w".as_slice(), &[b'a' + index as u8]].concat().into(),
                        window: *window,
                        demand: WindowDemand {
                            backs: if step % 3 == 0 { backs.collect() } else { Vec::new() },
                            want: number(&mut rng, window.quota),
                        },
                    }
                };
                let asks = windows.iter().enumerate().map(&mut ask).collect();
                let deadline = a_deadline(&mut rng, now);
                let batch = WindowBatch { shard: 3, deadline, asks };
                set_clock(&mut admin, now).await;
                let reported = store.windows(&batch).await.expect("the server answers");
                let expected = memory.windows_at(now, &batch).expect("a good batch");
                assert_eq!(reported, expected, "seed {seed}, step {step}, at {now}: {batch:?}");
                for (epochs, answer) in epochs.iter_mut().zip(reported.answers.iter().flatten()) {
                    epochs.insert(0, answer.epoch);
                    epochs.truncate(4);
                }
            }
        });
    }
}

fn a_change(rng: &mut Rng) -> Change {
    let source = std::net::IpAddr::from([192, 0, 2, rng.u8(..4)]);
    let left = std::time::Duration::from_micros(number(rng, WEEK));
    let list = if rng.bool() { List::Allow } else { List::Deny };
    match rng.u32(..4) {
        0 => Change::Ban { source, left },
        1 => Change::Unban { sources: source.into() },
        2 => Change::List { list, sources: source.into(), left: rng.bool().then_some(left) },
        _ => Change::Unlist { sources: source.into() },
    }
}

fn a_membership(rng: &mut Rng, known: u64) -> Membership {
    let instance = rng.u64(1..6) << 60;
    let heartbeat = Heartbeat {
        name: ["a", "b-2.example.org"][rng.usize(..2)].to_owned(),
        digest: rng.u64(..),
        version: "0.1.0".to_owned(),
    };
    let presence = match rng.u32(..4) {
        0 => Presence::Stay,
        1 => Presence::Leave,
        _ => Presence::Heartbeat(heartbeat),
    };
    let count = if rng.bool() { 0 } else { rng.usize(..4) };
    let changes = (0..count).map(|_| Sent::from(&a_change(rng))).collect();
    Membership { instance, presence, known, changes }
}

#[test]
fn the_script_of_nodes_and_its_model_give_the_same_answers() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    for seed in 0..4 {
        let mut rng = Rng::with_seed(seed);
        let (mut memory, store) = (Memory::default(), store(&server));
        let mut now = 1_795_000_000_000_000 + rng.u64(..WEEK);
        let (mut known, mut most) = (0, (0, 0));
        runtime.block_on(async {
            let _flushed: String = admin.ask(&["FLUSHALL"]).await;
            for step in 0..500 {
                now += [0, rng.u64(..1_000_000), rng.u64(..20_000_000)][rng.usize(..3)];
                if rng.u32(..40) == 0 {
                    now -= number(&mut rng, 2 * MINUTE);
                }
                let asked = if rng.u32(..8) == 0 { 0 } else { known };
                let membership = a_membership(&mut rng, asked);
                set_clock(&mut admin, now).await;
                let mut reported: Met = store.meet(&membership).await.expect("the server answers");
                reported.nodes.sort_by_key(|node| node.instance);
                let expected = memory.meet_at(now, &membership).expect("a good meeting");
                assert_eq!(
                    reported, expected,
                    "seed {seed}, step {step}, at {now}: {membership:?}"
                );
                known = reported.changes.last().map_or(known, |entry| entry.number);
                most = (most.0.max(reported.nodes.len()), most.1.max(reported.changes.len()));
            }
        });
        assert!(
            most.0 > 2 && most.1 == 200,
            "a run in which little happens shows little: {most:?}"
        );
    }
}
