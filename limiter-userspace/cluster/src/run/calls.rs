//! Calls to the store: which requests go out together, and how answers are processed. No tick waits
//! for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter_sharing::account::Answer;
use limiter_sharing::leases::Leases;
use tokio::task::JoinError;

use super::super::membership::Met;
use super::super::store::{
    Answers, Ask, Batch, Foreign, KEYS_MAX, Store, StoreError, WindowAsk, WindowBatch,
};
use super::contact::Kind;
use super::limit_state::{KeyRequest, LimitState};
use super::{LOOK, LOOK_AGAIN, Loop};

/// Keys of a call: number of the limit, and of its call.
pub(super) type Asked = Vec<(u64, u64)>;

pub(super) enum Outcome {
    Leases { shard: u16, asked: Asked, result: Result<Answers, StoreError>, took: Duration },
    Met { kind: Kind, result: Result<Met, StoreError>, took: Duration },
    Looked { at_all: bool },
}

/// Requests that go to the store together, by shard.
#[derive(Default)]
pub(super) struct Batches {
    leases: BTreeMap<u16, (Asked, Vec<Ask>)>,
    /// Limits of keys, which the store lists.
    pub(super) keys: BTreeMap<u16, (Asked, Vec<Ask>)>,
    /// Shards whose list is requested, and the time from which on.
    pub(super) lists: BTreeMap<u16, u64>,
    windows: BTreeMap<u16, (Asked, Vec<WindowAsk>)>,
}

impl Batches {
    /// Adds a request. Without numbers, nobody waits for its answer.
    pub(super) fn add(
        &mut self,
        held: &LimitState,
        numbers: Option<(u64, u64)>,
        request: KeyRequest,
    ) {
        let numbers = numbers.unwrap_or((u64::MAX, 0));
        let shard = held.shard();
        match request {
            KeyRequest::Lease(ask) => {
                let batches = if held.is_by_key() { &mut self.keys } else { &mut self.leases };
                let (asked, asks) = batches.entry(shard).or_default();
                asked.push(numbers);
                asks.push(ask);
            }
            KeyRequest::Window(ask) => {
                let (asked, asks) = self.windows.entry(shard).or_default();
                asked.push(numbers);
                asks.push(ask);
            }
        }
    }
}

impl<S: Store + 'static, L: Leases> Loop<S, L> {
    /// Makes the calls of a tick.
    pub(super) fn call(&mut self, batches: Batches) {
        let is_ready = self.store.is_ready();
        let Batches { leases, keys, mut lists, windows } = batches;
        let kinds = leases.into_iter().map(|batch| (false, batch));
        for (by_key, (shard, (asked, asks))) in
            kinds.chain(keys.into_iter().map(|batch| (true, batch)))
        {
            let mut asked = asked.into_iter();
            // A batch without keys only asks for the list.
            let empty = asks.is_empty().then_some(&asks[..]);
            for asks in asks.chunks(KEYS_MAX).chain(empty) {
                let asked: Asked = asked.by_ref().take(asks.len()).collect();
                if !is_ready {
                    self.not_made(&asked);
                    continue;
                }
                let list = if by_key { lists.remove(&shard) } else { None };
                let hot_since = by_key.then(|| list.unwrap_or(u64::MAX));
                let deadline = self.deadline(shard);
                let batch = Batch { shard, hot_since, deadline, asks: asks.to_vec() };
                let store = Arc::clone(&self.store);
                self.calls.spawn_local(async move {
                    let begin = Instant::now();
                    let result = store.exchange(&batch).await;
                    Outcome::Leases { shard, asked, result, took: begin.elapsed() }
                });
            }
        }
        for (shard, (asked, asks)) in windows {
            let mut asked = asked.into_iter();
            for asks in asks.chunks(KEYS_MAX) {
                let asked: Asked = asked.by_ref().take(asks.len()).collect();
                if !is_ready {
                    self.not_made(&asked);
                    continue;
                }
                let deadline = self.deadline(shard);
                let batch = WindowBatch { shard, deadline, asks: asks.to_vec() };
                let store = Arc::clone(&self.store);
                self.calls.spawn_local(async move {
                    let begin = Instant::now();
                    let result = store.windows(&batch).await;
                    Outcome::Leases { shard, asked, result, took: begin.elapsed() }
                });
            }
        }
    }

    /// The store's time until which a call for a shard is awaited if it is made now.
    fn deadline(&self, shard: u16) -> Option<u64> {
        let ahead = *self.store_ahead.get(&shard)?;
        let now = i64::try_from(self.leases.now()).ok()?.checked_add(ahead)?;
        let wait = u64::try_from(self.settings.timeout.as_micros()).ok()?;
        u64::try_from(now).ok()?.checked_add(wait)
    }

    pub(super) fn not_made(&mut self, asked: &Asked) {
        let now = self.leases.now();
        for (number, sequence) in asked {
            if let Some(held) = self.held.get_mut(number) {
                held.failed(now, *sequence);
            }
        }
    }

    /// Microseconds by which the store's clock, which just read `clock`, is ahead of that of the
    /// leases; slightly less, because the answer took time.
    fn ahead(&self, clock: u64) -> Option<i64> {
        let here = i64::try_from(self.leases.now()).ok()?;
        i64::try_from(clock).ok()?.checked_sub(here)
    }

    pub(super) fn ended(&mut self, outcome: Result<Outcome, JoinError>) {
        match outcome {
            Ok(Outcome::Leases { shard, asked, result: Ok(answers), took }) => {
                if let Some(ahead) = self.ahead(answers.now) {
                    self.store_ahead.insert(shard, ahead);
                }
                self.listed(shard, answers.now, &answers.hot);
                self.answered(&asked, &answers.answers, took);
            }
            Ok(Outcome::Leases { asked, result: Err(error), .. }) => {
                self.failed(Kind::Limits, &error);
                self.not_made(&asked);
            }
            Ok(Outcome::Met { kind, result: Ok(met), took }) => self.met(kind, &met, took),
            Ok(Outcome::Met { kind, result: Err(error), .. }) => {
                self.is_in_membership_call = false;
                self.change_log.failed();
                self.failed(kind, &error);
                if kind == Kind::Heartbeat {
                    self.next_heartbeat = 0;
                }
            }
            Ok(Outcome::Looked { at_all }) => {
                let pause = if at_all { LOOK } else { LOOK_AGAIN };
                self.next_look = self.leases.now() + pause;
            }
            // Calls are never cancelled, so this was a panic: nothing else is known.
            Err(error) => {
                self.is_in_membership_call = false;
                self.next_look = self.leases.now() + LOOK;
                self.change_log.failed();
                self.contact.failed(Kind::Heartbeat, error.to_string());
            }
        }
    }

    pub(super) fn failed(&mut self, kind: Kind, error: &StoreError) {
        // The error of another call is the cause.
        if !matches!(error, StoreError::Waits(_)) {
            self.contact.failed(kind, error.to_string());
        }
    }

    pub(super) fn answered(
        &mut self,
        asked: &Asked,
        answers: &[Result<Answer, Foreign>],
        took: Duration,
    ) {
        self.in_contact(Kind::Limits, took);
        let mut notices = Vec::new();
        for ((number, sequence), answer) in asked.iter().zip(answers) {
            let Some(held) = self.held.get_mut(number) else { continue };
            match answer {
                Ok(answer) => {
                    let refused = held.answered(*sequence, answer, &mut self.leases);
                    if refused > 0 {
                        let (now, units) =
                            (self.leases.now(), (answer.grant, refused, held.largest()));
                        let notice = self.beyond.note(now, held.name(), units);
                        notices.extend(notice);
                    }
                }
                Err(_) => held.failed(self.leases.now(), *sequence),
            }
            if let Some(notice) = self.contact.asked(*number, answer.as_ref().err()) {
                self.report(notice);
            }
        }
        for notice in notices {
            self.report(notice);
        }
    }
}
