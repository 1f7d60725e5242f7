//! The script for queues on a real server against a model of its own arithmetic: fractions of a
//! microsecond as integers of 128 bits, and lists in the order of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use limiter_cluster::QueueStore;
use limiter_cluster::queue::{
    Payload, QueueAsk, QueueBecame, QueueLimit, Room, Turn, Withheld, most_hits,
};
use limiter_cluster::redis::{QUEUE, Scripts};
use limiter_sharing::rate::Rate;

use crate::server::{Admin, Server, runtime};

const AGE: Duration = Duration::from_hours(24 * 30);

/// The script with the time of a key.
fn store(server: &Server) -> QueueStore {
    let mut settings = server.settings();
    let queue = QUEUE.replace("redis.call('TIME')", "redis.call('HMGET', 'clock', 's', 'u')");
    assert_ne!(queue, QUEUE);
    settings.scripts = Scripts { queue, ..Scripts::default() };
    settings.timeout = Duration::from_secs(20);
    QueueStore::new(settings).expect("a good prefix")
}

async fn set_clock(admin: &mut Admin, now: u64) {
    let (seconds, micros) = ((now / 1_000_000).to_string(), (now % 1_000_000).to_string());
    let _new: i64 = admin.ask(&["HSET", "clock", "s", &seconds, "u", &micros]).await;
}

/// A bucket of the model: for each limit the theoretical arrival time, in microseconds times the
/// units of its rate; and the hits that wait.
#[derive(Clone, Default)]
struct Bucket {
    tats: Vec<u128>,
    waits: VecDeque<(u64, String)>,
}

fn at(limit: &QueueLimit, micros: u64) -> u128 {
    u128::from(micros) * u128::from(limit.rate.units())
}

fn cost(limit: &QueueLimit, hits: u64) -> u128 {
    u128::from(hits) * u128::from(limit.rate.micros())
}

impl Bucket {
    fn settle(&mut self, limits: &[QueueLimit], now: u64) {
        self.tats.resize(limits.len(), 0);
        for (tat, limit) in self.tats.iter_mut().zip(limits) {
            *tat = (*tat).max(at(limit, now));
        }
    }

    /// True if so many hits may go at a time.
    fn passes(&self, limits: &[QueueLimit], hits: u64, now: u64) -> bool {
        self.tats.iter().zip(limits).all(|(tat, limit)| match limit.room {
            Room::Burst(burst) => tat + cost(limit, hits) <= at(limit, now) + cost(limit, burst),
            Room::Backlog(backlog) => *tat <= at(limit, now + backlog),
        })
    }

    fn charge(&mut self, limits: &[QueueLimit], hits: u64) {
        for (tat, limit) in self.tats.iter_mut().zip(limits) {
            *tat += cost(limit, hits);
        }
    }

    /// The first time from `now` on at which so many hits may go behind those that wait, by
    /// bisection.
    fn leaves(&self, limits: &[QueueLimit], hits: u64, now: u64) -> u64 {
        let mut then = self.clone();
        let ahead = self.waits.iter().map(|(hits, _)| hits).sum();
        then.charge(limits, ahead);
        let (mut low, mut high) = (now, now + (1 << 45));
        assert!(then.passes(limits, hits, high));
        while low < high {
            let middle = low.midpoint(high);
            if then.passes(limits, hits, middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// What leaves at a time.
    fn turn(&mut self, limits: &[QueueLimit], now: u64) -> Vec<String> {
        self.settle(limits, now);
        let mut left = Vec::new();
        while let Some((hits, _)) = self.waits.front()
            && self.passes(limits, *hits, now)
        {
            let (hits, id) = self.waits.pop_front().expect("there is one");
            self.charge(limits, hits);
            left.push(id);
        }
        left
    }
}

fn limits(rng: &mut Rng) -> Vec<QueueLimit> {
    (0..rng.usize(1..=3))
        .map(|_| {
            let rate = loop {
                let micros = 1 + (rng.u64(..1 << 33) >> rng.u32(..30));
                if let Some(rate) = Rate::new(rng.u64(1..2000), micros) {
                    break rate;
                }
            };
            let room = if rng.bool() {
                Room::Burst(rng.u64(1..20))
            } else {
                Room::Backlog(rng.u64(..1 << 20) >> rng.u32(..20))
            };
            QueueLimit { rate, room }
        })
        .collect()
}

/// Entries of a stream, with their fields.
type Entries = Vec<(String, Vec<String>)>;

/// A rule: its tag and its limits.
type Rule = (Box<str>, Vec<QueueLimit>);

/// A turn of the only mover.
fn turn_of(rules: &[Rule]) -> Turn<'_> {
    Turn {
        mover: "m",
        most: 1000,
        age: AGE,
        visibility: Duration::from_mins(1),
        attempts: 3,
        dead: 10,
        heard: 0,
        refused: Withheld::Nothing,
        rules,
    }
}

/// Microseconds since 1970, by the real clock: the ids of streams are of that one.
fn real_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("later").as_micros()).expect("in range")
}

/// Takes and acknowledges what workers could, so that they never stop the mover.
async fn taken(admin: &mut Admin) -> Vec<String> {
    let stream = "rl:queue:{q}:ready";
    let words = ["XREADGROUP", "GROUP", "workers", "w", "STREAMS", stream, ">"];
    let read: Option<Vec<(String, Entries)>> = admin.ask(&words).await;
    let mut ids = Vec::new();
    for (entry, fields) in read.into_iter().flatten().flat_map(|(_, entries)| entries) {
        let _acknowledged: i64 = admin.ask(&["XACK", stream, "workers", &entry]).await;
        let id = fields.chunks(2).find(|pair| pair[0] == "id").expect("it has one");
        ids.push(id[1].clone());
    }
    ids
}

/// The script and a model with arithmetic of its own.
#[test]
fn the_queue_script_and_its_model_give_the_same_answers() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    let mut counts = [0; 4];
    runtime.block_on(async {
        for seed in 0..12 {
            let _all: String = admin.ask(&["FLUSHALL"]).await;
            let store = store(&server);
            let rng = &mut Rng::with_seed(seed);
            let tags: Vec<Box<str>> = (0..2).map(|tag| format!("{tag:016x}").into()).collect();
            let rules: Vec<Rule> = tags.iter().map(|tag| (tag.clone(), limits(rng))).collect();
            let turn = turn_of(&rules);
            let mut model: BTreeMap<String, (usize, Bucket)> = BTreeMap::new();
            let mut now = real_clock();
            set_clock(&mut admin, now).await;
            store.turn("q", &turn).await.expect("a turn");
            for number in 0..250 {
                let length = rules[rng.usize(..2)].1[0].rate.micros_of(1).max(2);
                now += if rng.bool() { rng.u64(..3) } else { rng.u64(..length) };
                set_clock(&mut admin, now).await;
                if rng.u32(..3) == 0 {
                    let turn = Turn { heard: number + 1, ..turn };
                    let turned = store.turn("q", &turn).await.expect("a turn");
                    let mut expected: BTreeMap<&String, Vec<String>> = BTreeMap::new();
                    for (key, (rule, bucket)) in &mut model {
                        expected.insert(key, bucket.turn(&rules[*rule].1, now));
                    }
                    let mut found: BTreeMap<&String, Vec<String>> =
                        expected.keys().map(|key| (*key, Vec::new())).collect();
                    for id in taken(&mut admin).await {
                        let (key, _) = id.split_once(' ').expect("a key");
                        found.iter_mut().find(|of| *of.0 == key).expect("known").1.push(id);
                    }
                    assert_eq!(found, expected, "{seed} {number}");
                    let left: usize = expected.values().map(Vec::len).sum();
                    assert_eq!(turned.moved.left, left as u64);
                    let waits: usize = model.values().map(|(_, bucket)| bucket.waits.len()).sum();
                    assert_eq!((turned.waiting, turned.moved.died), (waits as u64, [0; 3]));
                    // The next leaves when the first of all buckets may.
                    let next = model.values().filter_map(|(rule, bucket)| {
                        let (hits, _) = bucket.waits.front()?;
                        let alone = Bucket { waits: VecDeque::new(), ..bucket.clone() };
                        Some(alone.leaves(&rules[*rule].1, *hits, now))
                    });
                    assert_eq!(turned.next, next.min(), "{seed} {number}");
                    counts[3] += left;
                    continue;
                }
                let rule = rng.usize(..2);
                let key = format!("{}{:032x}", tags[rule], rng.u32(..3));
                let limits = &rules[rule].1;
                let most = most_hits(limits);
                let hits = rng.u64(1..=most.min(4));
                let id = format!("{key} {number}");
                let has_payload = rng.u32(..4) > 0;
                let payload = Payload { id: &id, is_callers: false, text: "p" };
                let ask = QueueAsk {
                    bucket: &key,
                    hits,
                    limits,
                    depth: 1000,
                    age: AGE,
                    payload: has_payload.then_some(payload),
                };
                let answer = store.ask("q", &ask).await.expect("an answer");
                let (_, bucket) = model.entry(key).or_insert((rule, Bucket::default()));
                bucket.settle(limits, now);
                let leaves = bucket.leaves(limits, hits, now);
                let expected = if bucket.waits.is_empty() && leaves == now {
                    bucket.charge(limits, hits);
                    counts[0] += 1;
                    (QueueBecame::Within, 0)
                } else {
                    let wait = (leaves - now).max(1);
                    let ahead = bucket.waits.len() as u64;
                    if !has_payload {
                        counts[1] += 1;
                        (QueueBecame::Over, wait)
                    } else if u128::from(wait) > AGE.as_micros() {
                        (QueueBecame::TooLong, wait)
                    } else {
                        counts[2] += 1;
                        bucket.waits.push_back((hits, id));
                        (QueueBecame::Queued { ahead }, wait)
                    }
                };
                assert_eq!((answer.became, answer.wait), expected, "{seed} {number}");
                for ((tat, limit), used) in bucket.tats.iter().zip(limits).zip(&answer.used) {
                    let units = u128::from(limit.rate.units());
                    let owed = (tat - at(limit, now)).div_ceil(units);
                    assert_eq!(u128::from(*used), owed, "{seed} {number}");
                }
            }
        }
    });
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

/// Set back or ahead, the clock neither stops a queue nor lets more leave than a burst.
#[test]
fn a_clock_that_is_set_neither_stops_a_queue_nor_lets_a_heap_leave() {
    let Some(server) = Server::start(&[]) else { return };
    let runtime = runtime();
    let mut admin = server.admin(&runtime);
    let store = store(&server);
    let rate = Rate::new(10, 1_000_000).expect("in range");
    for room in [Room::Burst(2), Room::Backlog(100_000)] {
        runtime.block_on(async {
            let _all: String = admin.ask(&["FLUSHALL"]).await;
            let tag = "0".repeat(16);
            let limits = vec![QueueLimit { rate, room }];
            let rules = [(tag.as_str().into(), limits.clone())];
            let turn = turn_of(&rules);
            set_clock(&mut admin, real_clock()).await;
            store.turn("q", &turn).await.expect("a turn");
            let bucket = "0".repeat(48);
            for number in 0..40 {
                let id = number.to_string();
                let payload = Some(Payload { id: &id, is_callers: false, text: "p" });
                let depth = 1000;
                let ask = QueueAsk {
                    bucket: &bucket,
                    hits: 1,
                    limits: &limits,
                    depth,
                    age: AGE,
                    payload,
                };
                store.ask("q", &ask).await.expect("an answer");
            }
            let mut left = Vec::new();
            for (moved, expected) in [
                // Two at once have gone, so none is left at the beginning.
                (0, 0),
                (1_000_000, 10),
                // An hour back: what was owed is owed, and two more may be there after 0.2 s.
                (-3_600_000_000, 0),
                (200_000, 2),
                // A day ahead: a burst, and no more.
                (86_400_000_000, 2),
                (0, 0),
                (100_000, 1),
            ] {
                let now: String = admin.ask(&["HGET", "clock", "s"]).await;
                let micros: String = admin.ask(&["HGET", "clock", "u"]).await;
                let now: i64 = now.parse::<i64>().expect("a number") * 1_000_000
                    + micros.parse::<i64>().expect("a number");
                // By steps in which the bucket does not run full.
                let steps = if moved == 1_000_000 { 20 } else { 1 };
                let mut count = 0;
                for step in 1..=steps {
                    let at = u64::try_from(now + moved * step / steps).expect("in range");
                    set_clock(&mut admin, at).await;
                    store.turn("q", &turn).await.expect("a turn");
                    count += taken(&mut admin).await.len();
                }
                left.push((count, expected));
            }
            let (found, expected): (Vec<_>, Vec<_>) = left.into_iter().unzip();
            assert_eq!(found, expected, "{room:?}");
        });
    }
}
