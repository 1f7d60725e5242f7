//! How near sources come to the limits in force: `GET /v1/nearness`. All buckets are read round by
//! round, a few a second, and the rest at once when somebody asks. A share of them is followed over
//! a window; what a reading cannot see is bounded by the packets that came meanwhile.

mod followed;
mod judge;
mod read;
mod reported;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use limiter_common::bucket::{Resolved, Slot};
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{Control, KeyedBucket, Limit, Record, RuleCounters};
use limiter_datapath::{KeyPlace, Observed, Sweep};
use limiter_decision::gcra;

use self::followed::Followed;
use self::read::{Place, Read, of_keyed, of_source};
use super::error::ServiceError;
use crate::api::utilization::Of;

/// Buckets that are read in a second without being asked for: about a millisecond.
const CALM: usize = 2048;

/// Readings of so many places in a second, at most: in lines most places may be empty. That is
/// 2.5 MB of memory.
const READINGS: usize = 32;

/// Buckets that are read before others have their turn when somebody waits: a few milliseconds.
const SLICE: usize = 4096;

/// Sources that are read in the time of a key.
const EACH_KEY: usize = 4;

/// Between two rounds that nobody asked for.
const APART: Ticks = Ticks::from_nanos(10_000_000_000);

/// Time for each bucket by which a round may have begun before the question: so that asking again
/// and again costs a few per cent of a CPU at most.
const FRESH_EACH: u64 = 20_000;

const HALF: Ticks = Ticks::from_nanos(1_800_000_000_000);

/// Buckets that are followed, at most: 150 bytes each.
const FOLLOWED: usize = 1 << 14;

/// Rules that are looked at, at most.
const MOST_RULES: usize = 4096;

/// Steps of the used share that are distinguished.
pub(super) const TENTHS: usize = 10;

/// Buckets of a rule in one round.
#[derive(Clone, Debug, Default)]
struct Tally {
    tracked: u64,
    tenths: [u64; TENTHS],
}

/// A rule over the window.
#[derive(Clone, Debug)]
struct Watched {
    place: u32,
    of: Of,
    leased: bool,
    /// Time when it was first seen with these limits.
    since: Ticks,
    /// Counters at the beginning of the present half, and of the one before it.
    counters: [RuleCounters; 2],
}

#[derive(Debug)]
struct Round {
    began: Ticks,
    generation: u64,
    stage: Stage,
    buckets: u64,
    tallies: HashMap<u32, Tally>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Sources(Sweep),
    Keys(Option<KeyPlace>),
}

/// The last round that is done.
#[derive(Debug)]
struct Done {
    began: Ticks,
    buckets: u64,
    tallies: HashMap<u32, Tally>,
}

/// All that is known of the utilization.
#[derive(Debug, Default)]
pub(super) struct Watch {
    round: Option<Round>,
    done: Option<Done>,
    followed: HashMap<u64, Followed>,
    /// The rules with limits, by number, and the rule set that they are of.
    rules: HashMap<u32, Watched>,
    rules_of: Option<u64>,
    /// Time when these were first seen.
    rules_since: Ticks,
    /// True if there are more rules than are looked at.
    left_out: bool,
    /// Buckets are followed whose hash ends in so many zeros.
    level: u32,
    hash: RandomState,
    /// Beginning of the window; of its present half, and of the one before.
    halves: Option<[Ticks; 2]>,
    /// State after a round of all buckets of the rules in force; a bucket that is not known
    /// and is found later is new.
    all_known: Option<Known>,
    /// The longest time between the beginnings of two rounds in each half.
    apart: [Ticks; 2],
    /// Limits of the source table by slot, with the units that fit into each, for one slice: others
    /// may change the rules between two.
    limits: HashMap<u32, Option<(Limit, u64)>>,
    /// [`FOLLOWED`], but in tests.
    room: Option<usize>,
}

/// A round after which buckets that were not known are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    generation: u64,
    level: u32,
}

impl Watch {
    /// A watch that follows so many buckets at most.
    #[cfg(test)]
    pub(super) fn with_room(room: usize) -> Self {
        Self { room: Some(room), ..Self::default() }
    }

    /// Reads on without being asked: a round every now and then.
    pub(super) fn look(&mut self, datapath: &dyn Observed) -> Result<(), ServiceError> {
        let now = datapath.now();
        let waits = self.done.as_ref().is_some_and(|done| now.since(done.began) < APART);
        if self.round.is_none() && waits {
            return Ok(());
        }
        let mut left = CALM;
        for _ in 0..READINGS {
            left = left.saturating_sub(self.slice(datapath, left)?);
            if left == 0 || self.round.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Reads on for somebody who asked at a time; true once a round is fresh for that.
    pub(super) fn step(
        &mut self,
        datapath: &dyn Observed,
        asked: Ticks,
    ) -> Result<bool, ServiceError> {
        let is_fresh = |done: &Done| {
            asked.since(done.began) <= Ticks::from_nanos(done.buckets.saturating_mul(FRESH_EACH))
        };
        if self.round.is_none() && self.done.as_ref().is_some_and(is_fresh) {
            return Ok(true);
        }
        self.slice(datapath, SLICE)?;
        Ok(self.round.is_none() && self.done.as_ref().is_some_and(is_fresh))
    }

    /// Reads about `most` buckets, or as many places; says how many buckets were there.
    fn slice(&mut self, datapath: &dyn Observed, most: usize) -> Result<usize, ServiceError> {
        let now = datapath.now();
        let generation = datapath.generation();
        if self.rules_of != Some(generation) {
            self.find_rules(datapath, now)?;
            (self.rules_of, self.rules_since) = (Some(generation), now);
        }
        self.turn(datapath, now)?;
        let mut round = match self.round.take() {
            Some(round) if round.generation == generation => round,
            // Others came into force: what is reported is of one rule set.
            _ => Round {
                began: now,
                generation,
                stage: Stage::Sources(Sweep::default()),
                buckets: 0,
                tallies: HashMap::new(),
            },
        };
        self.limits.clear();
        let mut found = 0;
        match round.stage {
            Stage::Sources(mut sweep) => {
                for (source, bucket) in datapath.sources(&mut sweep, most)? {
                    found += 1;
                    let id = self.hash.hash_one(source);
                    let slot = Resolved::from_raw(bucket.resolved).slot();
                    let limit = self.limit(datapath, slot)?;
                    let read = of_source(&bucket, limit, datapath.max_frame(), now);
                    self.note(&mut round, id, read, now);
                }
                round.stage =
                    if sweep.is_done() { Stage::Keys(None) } else { Stage::Sources(sweep) };
                self.round = Some(round);
            }
            Stage::Keys(from) => {
                let is_done;
                (found, is_done) = self.keys(datapath, &mut round, from, most, now)?;
                if !is_done {
                    self.round = Some(round);
                    return Ok(found);
                }
                self.budgets(datapath, &mut round, now)?;
                self.end(round);
            }
        }
        Ok(found)
    }

    /// Reads about as many keys as take the time of `most` sources; says how many sources' time
    /// that was, and whether it was the last of them.
    fn keys(
        &mut self,
        datapath: &dyn Observed,
        round: &mut Round,
        from: Option<KeyPlace>,
        most: usize,
        now: Ticks,
    ) -> Result<(usize, bool), ServiceError> {
        if datapath.installed().tables.ids.is_empty() {
            return Ok((0, true));
        }
        let offset = WallOffset::from_raw(datapath.control(Control::WallOffset)?);
        // A key takes ten times the room of a source.
        let (keys, next) = datapath.keys(from, (most / EACH_KEY).max(1))?;
        let found = keys.len() * EACH_KEY;
        for (key, bucket) in keys {
            let id = self.hash.hash_one(bytemuck::bytes_of(&key));
            // A key that is charged to a budget has only counters: the budget has the state.
            let record = record(datapath, &bucket);
            if record.is_none_or(|record| record.budget == 0) {
                let read = of_keyed(&bucket, record, datapath.max_frame(), (now, offset));
                self.note(round, id, read, now);
            }
        }
        round.stage = Stage::Keys(next);
        Ok((found, next.is_none()))
    }

    /// The buckets of budgets: few, and all of them are followed.
    fn budgets(
        &mut self,
        datapath: &dyn Observed,
        round: &mut Round,
        now: Ticks,
    ) -> Result<(), ServiceError> {
        let offset = WallOffset::from_raw(datapath.control(Control::WallOffset)?);
        let budgets: Vec<u32> = {
            let records = datapath.installed().tables.records.values();
            records
                .filter(|record| record.budget_tag != 0)
                .filter_map(|record| record.budget.checked_sub(1))
                .collect()
        };
        for index in budgets {
            if let Some(bucket) = datapath.budget(index)? {
                // So many zeros that every level takes it.
                let id = u64::from(index + 1) << 32;
                let record = record(datapath, &bucket);
                let read = of_keyed(&bucket, record, datapath.max_frame(), (now, offset));
                self.note(round, id, read, now);
            }
        }
        Ok(())
    }

    /// A limit of the source table, if it limits anything, and the units that fit into it.
    fn limit(
        &mut self,
        datapath: &dyn Observed,
        slot: Slot,
    ) -> Result<Option<(Limit, u64)>, ServiceError> {
        if let Some(known) = self.limits.get(&slot.index()) {
            return Ok(*known);
        }
        let limit = datapath.limit(slot)?;
        let limit = limit.filter(|limit| !limit.is_unlimited() && limit.tolerance > 0);
        let limit = limit.map(|limit| (limit, gcra::remaining(&limit, Ticks::ZERO, Ticks::ZERO)));
        if self.limits.len() < MOST_RULES {
            self.limits.insert(slot.index(), limit);
        }
        Ok(limit)
    }

    /// Finds the rules in force. Those that have the limits that they had go on.
    fn find_rules(&mut self, datapath: &dyn Observed, now: Ticks) -> Result<(), ServiceError> {
        let installed = datapath.installed();
        let plain = installed.rules.values().filter(|rule| !rule.limit.is_unlimited());
        let plain = plain.map(|rule| {
            let place = Place { slot: Slot::new(rule.slot), keyed: false };
            (rule.limit.rule, place, Of::Sources, false)
        });
        let tables = &installed.tables;
        let keyed = tables.rules.iter().filter_map(|(id, slot)| {
            let record = tables.records.get(slot)?;
            let of = if record.budget_tag != 0 {
                Of::Budget
            } else if id.form.is_of_sources() {
                Of::Sources
            } else {
                Of::Keys
            };
            let place = Place { slot: Slot::new(*slot), keyed: true };
            let limits = !record.is_unlimited() && record.count > 0;
            limits.then_some((record.rule, place, of, record.leased != 0))
        });
        let mut rules = HashMap::new();
        self.left_out = false;
        for (rule, place, of, leased) in plain.chain(keyed) {
            let place = place.raw();
            if rules.len() >= MOST_RULES && !rules.contains_key(&rule) {
                self.left_out = true;
                break;
            }
            let before = self.rules.remove(&rule).filter(|watched| watched.place == place);
            let watched = match before {
                Some(watched) => Watched { of, leased, ..watched },
                None if rules.contains_key(&rule) => continue,
                None => {
                    let counters = [datapath.rule_counters(rule)?; 2];
                    Watched { place, of, leased, since: now, counters }
                }
            };
            rules.insert(rule, watched);
        }
        self.rules = rules;
        Ok(())
    }

    fn note(&mut self, round: &mut Round, id: u64, read: Read, now: Ticks) {
        let Read { place, rule, near, .. } = read;
        self.follow(round, id, read, now);
        // Others are of limits that are not in force any more.
        if self.rules.get(&rule).is_none_or(|watched| watched.place != place) {
            return;
        }
        round.buckets += 1;
        let tally = round.tallies.entry(rule).or_default();
        tally.tracked += 1;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 10")]
        let tenth = (near * 10.0) as usize;
        if let Some(count) = tally.tenths.get_mut(tenth.min(TENTHS - 1)) {
            *count += 1;
        }
    }

    /// Follows a bucket, if it is among those. Also one without limits in force: it may have some
    /// with its next packet, and what it counted before is not of those.
    fn follow(&mut self, round: &Round, id: u64, read: Read, now: Ticks) {
        if id.trailing_zeros() < self.level {
            return;
        }
        let known = Known { generation: round.generation, level: self.level };
        let is_new = self.all_known == Some(known);
        let since = self.rules_since;
        match self.followed.get_mut(&id) {
            Some(followed) => followed.read(read, now, since),
            None => {
                self.followed.insert(id, Followed::new(read, now, is_new));
            }
        }
        while self.followed.len() > self.room.unwrap_or(FOLLOWED) {
            self.level += 1;
            let level = self.level;
            self.followed.retain(|id, _| id.trailing_zeros() >= level);
            // Buckets that stay are the same as before: none that is found later was left out.
            self.all_known = self.all_known.map(|known| Known { level, ..known });
        }
    }

    fn end(&mut self, round: Round) {
        let Round { began, generation, buckets, tallies, .. } = round;
        if let Some(done) = &self.done {
            let [apart, _] = &mut self.apart;
            *apart = (*apart).max(began.since(done.began));
        }
        self.all_known = Some(Known { generation, level: self.level });
        self.done = Some(Done { began, buckets, tallies });
    }

    /// Begins the next half of the window, if it is time.
    fn turn(&mut self, datapath: &dyn Observed, now: Ticks) -> Result<(), ServiceError> {
        let [half, _] = *self.halves.get_or_insert([now; 2]);
        if now.since(half) < HALF {
            return Ok(());
        }
        self.halves = Some([now, half]);
        self.followed.retain(|_, followed| followed.turn(half));
        for (rule, watched) in &mut self.rules {
            let [first, _] = watched.counters;
            watched.counters = [datapath.rule_counters(*rule)?, first];
        }
        let [apart, _] = self.apart;
        self.apart = [Ticks::ZERO, apart];
        if self.level > 0 && self.followed.len() < self.room.unwrap_or(FOLLOWED) / 4 {
            // Buckets that are followed from now on are reported from their first reading on.
            self.level -= 1;
            self.all_known = None;
        }
        Ok(())
    }
}

/// The limits of a bucket of a keyed table, or of a budget, if they are in force.
fn record<'a>(datapath: &'a dyn Observed, bucket: &KeyedBucket) -> Option<&'a Record> {
    let slot = Resolved::from_raw(bucket.resolved).slot();
    datapath.installed().tables.records.get(&slot.index())
}
