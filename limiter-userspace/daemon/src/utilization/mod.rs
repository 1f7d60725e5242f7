//! How near sources come to the limits in force: `GET /v1/utilization`. All buckets are read in
//! rounds, a few a second, and the rest of a round at once when a client asks. A share of the
//! buckets is followed over a window; packets between two readings bound what the readings cannot
//! see.

mod followed;
mod judge;
mod read;
mod reported;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use limiter_api::utilization::Of;
use limiter_common::bucket::{Resolved, Slot};
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{Control, KeyedBucket, Limit, Record, RuleCounters};
use limiter_datapath::{KeyPlace, Observed, Sweep};
use limiter_decision::gcra;

use self::followed::Followed;
use self::read::{Place, Read, of_keyed, of_source};
use super::error::ServiceError;

/// Buckets that are read in a second without a request: about a millisecond.
const CALM: usize = 2048;

/// Most readings of this many places in a second, because most places in lines may be empty. They
/// take 2.5 MB of memory.
const READINGS: usize = 32;

/// Buckets that are read before others have their turn, when a client waits: a few milliseconds.
const SLICE: usize = 4096;

/// Sources that can be read in the time of one key.
const EACH_KEY: usize = 4;

/// Shortest time between two rounds without a request.
const APART: Ticks = Ticks::from_nanos(10_000_000_000);

/// Nanoseconds for each bucket by which a round may have begun before the request, so that repeated
/// requests cost at most a few per cent of a CPU.
const FRESH_EACH: u64 = 20_000;

const HALF: Ticks = Ticks::from_nanos(1_800_000_000_000);

/// Most buckets that are followed: 150 bytes each.
const FOLLOWED: usize = 1 << 14;

/// Most rules that are looked at.
const MOST_RULES: usize = 4096;

/// Number of steps of the used share.
pub(super) const TENTHS: usize = 10;

/// Counts of a rule's buckets in one round.
#[derive(Clone, Debug, Default)]
struct Tally {
    tracked: u64,
    tenths: [u64; TENTHS],
}

/// State of a rule over the window.
#[derive(Clone, Debug)]
struct Watched {
    place: u32,
    of: Of,
    leased: bool,
    /// Time at which the rule was first seen with these limits.
    since: Ticks,
    /// Counters at the begin of the present half, and of the previous one.
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

/// Result of the last complete round.
#[derive(Debug)]
struct Done {
    began: Ticks,
    buckets: u64,
    tallies: HashMap<u32, Tally>,
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    round: Option<Round>,
    done: Option<Done>,
    followed: HashMap<u64, Followed>,
    /// The rules with limits, by number, and the rule set that they belong to.
    rules: HashMap<u32, Watched>,
    rules_of: Option<u64>,
    /// Time at which these rules were first seen.
    rules_since: Ticks,
    /// True if there are more rules than are looked at.
    left_out: bool,
    /// Buckets are followed if their hash ends in this many zero bits.
    level: u32,
    hash: RandomState,
    /// Begin of the present half of the window, and of the previous half.
    halves: Option<[Ticks; 2]>,
    /// State after a complete round over the buckets of the rules in force: an unknown bucket found
    /// later is new.
    all_known: Option<Known>,
    /// Longest time between the begins of two rounds, in each half.
    apart: [Ticks; 2],
    /// Limits of the source table by slot, with their capacity in units. Kept for one slice,
    /// because the rules may change before the next.
    limits: HashMap<u32, Option<(Limit, u64)>>,
    /// Replaces [`FOLLOWED`] in tests.
    room: Option<usize>,
}

/// A round after which unknown buckets are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    generation: u64,
    level: u32,
}

impl Watch {
    /// Makes a watch that follows at most `room` buckets.
    #[cfg(test)]
    pub(super) fn with_room(room: usize) -> Self {
        Self { room: Some(room), ..Self::default() }
    }

    /// Reads the next buckets without a request, with pauses between rounds.
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

    /// Reads the next buckets for a request made at a given time; returns true once a round is
    /// recent enough for it.
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

    /// Reads about `most` buckets, or as many places; returns the number of buckets found.
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
            // Other rules came into force, and an answer is about one rule set.
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

    /// Reads about as many keys as take the time of `most` sources; returns that time in sources,
    /// and whether all keys were read.
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
        // A key takes ten times the space of a source.
        let (keys, next) = datapath.keys(from, (most / EACH_KEY).max(1))?;
        let found = keys.len() * EACH_KEY;
        for (key, bucket) in keys {
            let id = self.hash.hash_one(bytemuck::bytes_of(&key));
            // A key charged to a budget has only counters, because the budget has the state.
            let record = record(datapath, &bucket);
            if record.is_none_or(|record| record.budget == 0) {
                let read = of_keyed(&bucket, record, datapath.max_frame(), (now, offset));
                self.note(round, id, read, now);
            }
        }
        round.stage = Stage::Keys(next);
        Ok((found, next.is_none()))
    }

    /// Reads the buckets of budgets: there are few, and all are followed.
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
                // Has so many trailing zeros that every level follows it.
                let id = u64::from(index + 1) << 32;
                let record = record(datapath, &bucket);
                let read = of_keyed(&bucket, record, datapath.max_frame(), (now, offset));
                self.note(round, id, read, now);
            }
        }
        Ok(())
    }

    /// A limit of the source table with its capacity in units, if it limits anything.
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

    /// Finds the rules in force. Rules with unchanged limits keep their state.
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
        // Other buckets belong to limits that are no longer in force.
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

    /// Follows a bucket, if its level is followed. This includes buckets without limits in force:
    /// the next packet may put one under a limit, and its earlier counts do not belong to that
    /// limit.
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
            // The remaining buckets are unchanged, so every bucket found later is new.
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
            // Buckets followed from now on are reported from their first reading on.
            self.level -= 1;
            self.all_known = None;
        }
        Ok(())
    }
}

/// The limits of a bucket in a keyed table, or of a budget, if they are in force.
fn record<'a>(datapath: &'a dyn Observed, bucket: &KeyedBucket) -> Option<&'a Record> {
    let slot = Resolved::from_raw(bucket.resolved).slot();
    datapath.installed().tables.records.get(&slot.index())
}
