//! Bans: packets over a limit lead to a time in which a source gets nothing through.
//!
//! Each packet over the limit is a strike. Strikes count from the first one on, for as long as the
//! rule remembers them; enough of them are a ban, after which they start again. Each further ban is
//! twice as long, up to the maximum, until the source has had no ban for as long as the rule
//! remembers.
//!
//! `history` decides: the CPU that exchanges it for one with a new ban sets the end of the ban. The
//! end only moves later, so a late CPU cannot shorten a ban that another CPU set.

use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::wire::Action;

use crate::cell::Cell;
use crate::register::variants;
use crate::rounds::MAX_TRIES;
use crate::rounds::Rounds;

/// Binary digits of ticks that [`History`] drops: 2^23 ticks are 262 µs.
const SINCE_BITS: u32 = 23;

/// Time after the beginning of a ban during which its end may not be stored yet: 1 ms. No rule has
/// a shorter ban.
const SETTLING: u64 = 4 << SINCE_BITS;

const SINCE_MASK: u64 = (1 << 40) - 1;
const MAX_STRIKES: u64 = 0xffff;
const MAX_LEVEL: u64 = 0xff;

/// The memory of one source in one word: `level:8 | strikes:16 | since:40`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History(u64);

limiter_common::raw_word!(History);

impl History {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn new(level: u64, strikes: u64, since: Ticks) -> Self {
        let level = if level > MAX_LEVEL { MAX_LEVEL } else { level };
        let strikes = if strikes > MAX_STRIKES { MAX_STRIKES } else { strikes };
        Self(level << 56 | strikes << 40 | since.get() >> SINCE_BITS & SINCE_MASK)
    }

    /// Remembered bans, at most 255.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn level(self) -> u64 {
        self.0 >> 56
    }

    /// Packets over the limit since the last ban.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn strikes(self) -> u64 {
        self.0 >> 40 & MAX_STRIKES
    }

    /// Time of the first of these strikes, or if there are none, of the last ban; up to 262 µs
    /// early.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn since(self) -> Ticks {
        Ticks::new_within((self.0 & SINCE_MASK) << SINCE_BITS)
    }
}

/// The terms of a ban: its length and its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanTerms {
    /// The first ban, in ticks.
    pub first: u64,
    /// The longest, in ticks.
    pub longest: u64,
    /// Time for which strikes and bans are remembered, in ticks.
    pub memory: u64,
    /// Strikes that lead to a ban.
    pub strikes: u32,
}

impl BanTerms {
    /// The terms of an action.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn of(action: &Action) -> Self {
        Self {
            first: action.ban_first,
            longest: action.ban_longest,
            memory: action.ban_memory,
            strikes: action.target,
        }
    }

    /// The length of the ban after `level` others.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn length(&self, level: u64) -> Ticks {
        // Written this way, nothing overflows.
        if level >= 63 || self.first > self.longest >> level {
            Ticks::new(self.longest)
        } else {
            Ticks::new(self.first << level)
        }
    }
}

/// The consequence of a strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// The source is banned already.
    Banned,
    /// The strike was counted.
    Counted(History),
    /// The strike was the last one before a ban.
    Ban {
        /// The history from here on.
        history: History,
        /// The end of the ban.
        until: Ticks,
    },
}

/// Counts one strike at `now`. `until` is the end of the last ban, past or future; zero if there
/// was none.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn strike(until: Ticks, history: History, terms: &BanTerms, now: Ticks) -> Strike {
    let begun = history.strikes() == 0 && history.level() > 0;
    if until.get() > now.get() || begun && now.since(history.since()).get() < SETTLING {
        return Strike::Banned;
    }
    // A clock that ran backwards counts as no time, so nothing is forgotten.
    let level = if now.since(until).get() > terms.memory { 0 } else { history.level() };
    let fresh = history.strikes() == 0 || now.since(history.since()).get() > terms.memory;
    let (strikes, since) = if fresh { (1, now) } else { (history.strikes() + 1, history.since()) };
    if strikes < terms.strikes as u64 {
        return Strike::Counted(History::new(level, strikes, since));
    }
    let until = now.plus(terms.length(level));
    Strike::Ban { history: History::new(level + 1, 0, now), until }
}

/// The record of a source, in place: the words of [`limiter_common::wire::Ban`].
pub trait Entry {
    /// The end of the ban.
    fn until(&self) -> impl Cell;

    /// The word of [`History`].
    fn history(&self) -> impl Cell;

    /// The rule that banned it last.
    fn rule(&self) -> impl Cell;
}

/// True if the next strike of a source leads to a ban, for which a permit is needed.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_last<E: Entry>(entry: Option<&E>, terms: &BanTerms, now: Ticks) -> bool {
    match entry {
        Some(entry) => matches!(next(entry, terms, now).0, Strike::Ban { .. }),
        None => terms.strikes <= 1,
    }
}

/// The result of an attempt to count a strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StrikeResult {
    /// Nothing is left to do.
    Done = 0,
    /// The source was banned by this strike.
    Banned = 1,
    /// Try again: the record was only just made, or another CPU was faster.
    Lost = 2,
}

variants!(StrikeResult: Done Banned, else Lost; lost Done);

/// Counts a strike of a source, and bans it if that was the last one. Unless it is `allowed`, the
/// last strike is not counted, so that the next one asks again. `attempt` is this module's
/// [`attempt`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn record(attempt: impl Fn() -> StrikeResult) -> bool {
    let mut rounds = Rounds::new();
    while rounds.more(MAX_TRIES) {
        match attempt() {
            StrikeResult::Done => return false,
            StrikeResult::Banned => return true,
            StrikeResult::Lost => {}
        }
    }
    false
}

/// Tries once to count a strike of a source on record.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn attempt(
    entry: &impl Entry,
    terms: &BanTerms,
    rule: u32,
    now: Ticks,
    allowed: bool,
) -> StrikeResult {
    let (history, end, seen) = match next(entry, terms, now) {
        (Strike::Banned, _) => return StrikeResult::Done,
        (Strike::Ban { .. }, _) if !allowed => return StrikeResult::Done,
        (Strike::Counted(history), seen) => (history, Ticks::ZERO, seen),
        (Strike::Ban { history, until }, seen) => (history, until, seen),
    };
    if !entry.history().compare_exchange(seen, history.raw()) {
        return StrikeResult::Lost;
    }
    if end.get() == 0 {
        return StrikeResult::Done;
    }
    begin(entry, end, rule);
    StrikeResult::Banned
}

/// The consequence of one more strike, and the history word from which it was computed.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn next(entry: &impl Entry, terms: &BanTerms, now: Ticks) -> (Strike, u64) {
    let history = entry.history().load();
    (strike(end_of_last(entry), History::from_raw(history), terms, now), history)
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn end_of_last(entry: &impl Entry) -> Ticks {
    Ticks::new_within(entry.until().load() & MAX_TICKS)
}

/// Moves the end of the ban to `until`, unless it is later already.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn begin(entry: &impl Entry, until: Ticks, rule: u32) {
    let mut rounds = Rounds::new();
    while rounds.more(MAX_TRIES) {
        let seen = entry.until().load();
        if seen >= until.get() || entry.until().compare_exchange(seen, until.get()) {
            break;
        }
    }
    // An exchange fails only if another rule banned the source at the same time.
    let seen = entry.rule().load();
    entry.rule().compare_exchange(seen, u64::from(rule));
}
