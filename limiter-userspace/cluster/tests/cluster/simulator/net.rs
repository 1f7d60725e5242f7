//! Nodes, a store and what is between them, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use limiter_cluster::memory::Memory;
use limiter_cluster::store::{Answers, Ask, Batch};
use limiter_sharing::SharedLimit;
use limiter_sharing::account::{Answer, Central};
use limiter_sharing::key::{Call, Key, Seen};

use super::meter::Meter;
use super::path::Path;
use super::scene::SECOND;

/// Beginning of the store's clock: November 2026.
const EPOCH: u64 = 1_795_000_000_000_000;
const NAME: &[u8] = b"customer/192.0.2.7";
/// Sums of a run are kept for parts of this many microseconds.
pub(crate) const PART: u64 = 100_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Thousandths of calls that do not arrive, and of answers that do not, come twice, or come
    /// after the caller gave up.
    pub(crate) lost_calls: u32,
    pub(crate) lost_answers: u32,
    pub(crate) doubled: u32,
    pub(crate) late: u32,
    /// Node, from, until: no call and no answer passes.
    pub(crate) cuts: Vec<(usize, u64, u64)>,
    /// Node, from, until: its daemon does nothing.
    pub(crate) pauses: Vec<(usize, u64, u64)>,
    /// At that time the store's clock goes that far forward, or back.
    pub(crate) steps: Vec<(u64, i64)>,
    /// At that time the store loses everything.
    pub(crate) flushes: Vec<u64>,
    /// From, until: at the latter the store is as it was at the former.
    pub(crate) rewinds: Vec<(u64, u64)>,
    /// At that time the nodes learn of another number of nodes.
    pub(crate) members: Vec<(u64, SharedLimit)>,
    /// Nodes that have other numbers of the limit than the rest.
    pub(crate) others: Vec<(usize, SharedLimit)>,
    pub(crate) lies: Lies,
}

/// A store that does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lies {
    #[default]
    None,
    /// The store grants what is wanted.
    Generous,
    /// The store grants anything up to that, and says or does not say that the key exists.
    Random,
}

impl Faults {
    fn is_in(spans: &[(usize, u64, u64)], node: usize, now: u64) -> bool {
        spans.iter().any(|(of, from, until)| *of == node && (*from..*until).contains(&now))
    }
}

/// Units a second that arrive at a node.
pub(crate) type Load = dyn Fn(usize, u64) -> f64;

pub(crate) struct Scene<'a> {
    pub(crate) limit: SharedLimit,
    pub(crate) load: &'a Load,
    pub(crate) packet: u64,
    /// Shortest and longest way of a call, or of an answer, in microseconds.
    pub(crate) trip: (u64, u64),
    pub(crate) faults: Faults,
    pub(crate) micros: u64,
    pub(crate) seed: u64,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    /// By how much the worst window exceeded `burst + rate * window`.
    pub(crate) over: i64,
    pub(crate) admitted: u64,
    pub(crate) offered: u64,
    /// Units offered and passed in each tenth of a second.
    pub(crate) parts: Vec<(u64, u64)>,
    pub(crate) calls: u64,
    /// Units that the store granted, and that shares reported to it, in what it forgot then.
    pub(crate) forgotten: u64,
    /// Units that the store granted beyond the accounts of the nodes.
    pub(crate) beyond: u64,
    /// Longest time in which a node had no answer.
    pub(crate) longest_silence: u64,
}

enum Event {
    ToStore { node: usize, call: Option<Call>, poll: Option<Seen>, batch: Batch, sent: u64 },
    ToNode { node: usize, call: Option<Call>, poll: Option<Seen>, answers: Answers, sent: u64 },
    GiveUp { node: usize, sequence: u64 },
}

struct Node {
    key: Key,
    path: Path,
    next_tick: u64,
    next_poll: u64,
    cursor: u64,
    last_answer: u64,
    arrears: f64,
}

struct Run<'a> {
    scene: &'a Scene<'a>,
    rng: Rng,
    nodes: Vec<Node>,
    store: Memory,
    /// The store as it was, and what came to it since.
    before: Option<(Memory, u64)>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: std::collections::HashMap<u64, Event>,
    number: u64,
    outcome: Outcome,
}

pub(crate) fn run(scene: &Scene<'_>) -> Outcome {
    let settings = *scene.limit.settings();
    let mut rng = Rng::with_seed(scene.seed);
    let nodes = (0..usize::try_from(settings.nodes).expect("fits")).map(|node| {
        let other = scene.faults.others.iter().find(|(of, _)| *of == node);
        let limit = other.map_or(scene.limit, |(_, limit)| *limit);
        Node {
            key: Key::new(limit, 0, rng.u64(..)),
            path: Path::new(&limit),
            next_tick: rng.u64(..settings.sync / 8),
            next_poll: rng.u64(..settings.sync),
            cursor: 0,
            last_answer: 0,
            arrears: rng.f64(),
        }
    });
    let nodes = nodes.collect();
    let mut run = Run {
        scene,
        rng,
        nodes,
        store: Memory::default(),
        before: None,
        events: BinaryHeap::new(),
        pending: std::collections::HashMap::new(),
        number: 0,
        outcome: Outcome {
            over: 0,
            admitted: 0,
            offered: 0,
            parts: vec![(0, 0); usize::try_from(scene.micros / PART + 1).expect("fits")],
            calls: 0,
            forgotten: 0,
            beyond: 0,
            longest_silence: 0,
        },
    };
    // The store is older than the rule.
    let boot = Batch { shard: 0, deadline: None, hot_since: None, asks: Vec::new() };
    run.store.exchange_at(EPOCH - 1_000_000_000, &boot).expect("a batch");
    run.all(Meter::new(settings.rate))
}

impl Run<'_> {
    fn all(mut self, mut meter: Meter) -> Outcome {
        let settings = *self.scene.limit.settings();
        for node in 0..self.nodes.len() {
            let words = self.nodes[node].key.words();
            self.nodes[node].path.write(words);
            let lost = self.scene.limit.lost_after() + settings.sync;
            self.nodes[node].path.lost_at(lost);
        }
        let step = (settings.sync / 64).clamp(200, 5_000);
        let (mut flushes, mut rewinds, mut members) = (0, 0, 0);
        let mut now = 0;
        while now < self.scene.micros {
            if self.scene.faults.flushes.get(flushes).is_some_and(|at| now >= *at) {
                self.store.flush();
                flushes += 1;
            }
            if let Some((from, until)) = self.scene.faults.rewinds.get(rewinds) {
                if now >= *from && self.before.is_none() {
                    self.before = Some((self.store.clone(), 0));
                }
                if now >= *until
                    && let Some((store, forgotten)) = self.before.take()
                {
                    self.store = store;
                    self.outcome.forgotten += forgotten;
                    rewinds += 1;
                }
            }
            if let Some((_, limit)) =
                self.scene.faults.members.get(members).filter(|(at, _)| now >= *at)
            {
                members += 1;
                for node in &mut self.nodes {
                    node.key.set_limit(now, *limit);
                    node.path.set_share(limit);
                }
            }
            while self.events.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                if let Some(Reverse((_, number))) = self.events.pop() {
                    let event = self.pending.remove(&number).expect("an event has its number");
                    self.event(now, event);
                }
            }
            self.packets(now, step, &mut meter);
            for node in 0..self.nodes.len() {
                self.tick(now, node);
            }
            now += step;
        }
        self.outcome.beyond = self.nodes.iter().map(|node| node.key.cap().refused()).sum();
        self.outcome.admitted = meter.admitted();
        self.outcome.over = i64::try_from(meter.excess()).expect("fits")
            - i64::try_from(settings.burst).expect("fits");
        self.outcome
    }

    fn packets(&mut self, now: u64, step: u64, meter: &mut Meter) {
        let part = &mut self.outcome.parts[usize::try_from(now / PART).expect("fits")];
        let first = self.rng.usize(..self.nodes.len());
        for at in 0..self.nodes.len() {
            let index = (first + at) % self.nodes.len();
            let node = &mut self.nodes[index];
            let packets =
                (self.scene.load)(index, now) * step as f64 / 1e6 / self.scene.packet as f64;
            // Between even and Poisson: whole packets come with the chance of the rest.
            node.arrears += packets * (0.5 + self.rng.f64());
            while node.arrears >= 1.0 {
                node.arrears -= 1.0;
                self.outcome.offered += self.scene.packet;
                part.0 += self.scene.packet;
                if node.path.packet(now, self.scene.packet) {
                    meter.pass(now, self.scene.packet);
                    part.1 += self.scene.packet;
                }
            }
        }
    }

    fn post(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number)));
        self.pending.insert(self.number, event);
    }

    fn trip(&mut self) -> u64 {
        self.rng.u64(self.scene.trip.0..=self.scene.trip.1)
    }

    fn happens(&mut self, thousandths: u32) -> bool {
        thousandths > 0 && self.rng.u32(..1000) < thousandths
    }

    fn tick(&mut self, now: u64, index: usize) {
        let limit = *self.scene.limit.settings();
        let node = &mut self.nodes[index];
        if Faults::is_in(&self.scene.faults.pauses, index, now) {
            return;
        }
        // The path says when half of a share is used up: nobody waits for a tick.
        let asks = !node.key.is_hot() && {
            let seen = node.path.seen(now);
            self.scene.limit.cold().is_some_and(|(_, burst)| seen.owed * 2 > burst)
        };
        if now < node.next_tick && !asks {
            return;
        }
        node.next_tick = now + limit.sync / 8;
        let seen = node.path.seen(now);
        let call = node.key.tick(now, &seen);
        node.path.write(node.key.words());
        let poll = (!limit.always && now >= node.next_poll).then(|| {
            node.next_poll = now + limit.sync;
            seen
        });
        if call.is_none() && poll.is_none() {
            return;
        }
        let asks = call.map(|call| Ask {
            name: NAME.into(),
            central: Central::of(node.key.limit()),
            demand: call.demand,
        });
        // Calls of limits without shares have no hot list.
        let hot_since = poll.map(|_| node.cursor).or((!limit.always).then_some(u64::MAX));
        let batch = Batch { shard: 0, deadline: None, hot_since, asks: asks.into_iter().collect() };
        self.outcome.calls += 1;
        if let Some(call) = call {
            let event = Event::GiveUp { node: index, sequence: call.sequence };
            self.post(now + limit.sync.min(350_000), event);
        }
        let cut = Faults::is_in(&self.scene.faults.cuts, index, now);
        if cut || self.happens(self.scene.faults.lost_calls) {
            return;
        }
        let at = now + self.trip();
        self.post(at, Event::ToStore { node: index, call, poll, batch, sent: now });
    }

    fn lie(&mut self, answer: &mut Answer, want: u64) {
        match self.scene.faults.lies {
            Lies::None => {}
            Lies::Generous => (answer.grant, answer.wait) = (want, 0),
            Lies::Random => {
                answer.grant = self.rng.u64(..=want);
                answer.wait = self.rng.u64(..SECOND);
                answer.rest = if self.rng.bool() { self.rng.u64(..SECOND) } else { 0 };
            }
        }
    }

    fn event(&mut self, now: u64, event: Event) {
        match event {
            Event::ToStore { node, call, poll, batch, sent } => {
                let steps = self.scene.faults.steps.iter().filter(|(at, _)| *at <= now);
                let stepped: i64 = steps.map(|(_, by)| by).sum();
                let clock = (EPOCH + now).saturating_add_signed(stepped);
                let mut answers = self.store.exchange_at(clock, &batch).expect("a batch of one");
                for (answer, ask) in answers.answers.iter_mut().flatten().zip(&batch.asks) {
                    self.lie(answer, ask.demand.want);
                }
                if let Some((_, forgotten)) = &mut self.before {
                    let granted = answers.answers.iter().flatten().map(|answer| answer.grant);
                    let reported = batch.asks.iter().map(|ask| ask.demand.owed);
                    *forgotten += granted.chain(reported).sum::<u64>();
                }
                if self.happens(self.scene.faults.lost_answers) {
                    return;
                }
                let mut at = now + self.trip();
                if self.happens(self.scene.faults.late) {
                    at += self.scene.limit.settings().sync * 3 / 2;
                }
                if self.happens(self.scene.faults.doubled) {
                    let again = at + self.trip();
                    let answers = answers.clone();
                    self.post(again, Event::ToNode { node, call, poll, answers, sent });
                }
                self.post(at, Event::ToNode { node, call, poll, answers, sent });
            }
            Event::ToNode { node: index, call, poll, answers, sent } => {
                let faults = &self.scene.faults;
                if Faults::is_in(&faults.cuts, index, now) {
                    return;
                }
                let mut later = faults
                    .pauses
                    .iter()
                    .filter(|(of, from, until)| *of == index && (*from..*until).contains(&now));
                if let Some((_, _, until)) = later.next() {
                    let until = *until;
                    self.post(until, Event::ToNode { node: index, call, poll, answers, sent });
                    return;
                }
                let lost_after = self.scene.limit.lost_after();
                let node = &mut self.nodes[index];
                if let Some(seen) = poll {
                    node.cursor = answers.now;
                    if answers.hot.iter().any(|key| &*key.name == NAME) {
                        node.key.promoted();
                    } else {
                        node.key.not_hot(&seen);
                    }
                }
                if let (Some(call), Some(answer)) =
                    (call, answers.answers.first().and_then(|answer| answer.as_ref().ok()))
                {
                    node.key.answered(now, call.sequence, answer);
                    node.path.write(node.key.words());
                }
                let silence = sent.saturating_sub(node.last_answer);
                self.outcome.longest_silence = self.outcome.longest_silence.max(silence);
                node.last_answer = sent;
                node.path.lost_at(sent + lost_after + self.scene.limit.settings().sync);
            }
            Event::GiveUp { node, sequence } => {
                let node = &mut self.nodes[node];
                node.key.failed(now, sequence);
                node.path.write(node.key.words());
            }
        }
    }
}
