//! The compiled form of a rule of a table: up to four limits of any algorithm.

use bytemuck::{Pod, Zeroable};

use super::{Count, Kind};
use crate::bucket::MAX_SLOTS;
use crate::frame_size::FrameSize;
use crate::time::{TICK_BITS, Ticks};
use crate::window::{LogLimit, WindowLimit};
use crate::wire::Limit;

/// The most limits of a rule.
pub const MAX_LIMITS: usize = 4;

/// Upper bound of record slots: the last two indices have other meanings.
pub const MAX_RECORDS: u32 = MAX_SLOTS - 2;

/// The most shared budgets of rules, including those being replaced.
pub const MAX_BUDGETS: u32 = 1024;

/// Words of state that the limits of a rule share. The longest log needs all of them.
pub const WORDS: usize = 32;

/// The algorithm of a limit; see `limiter_decision::algorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// `limiter_decision::gcra`.
    TokenBucket = 0,
    /// `limiter_decision::algorithm::leaky_bucket`.
    LeakyBucket = 1,
    /// `limiter_decision::algorithm::fixed_window`.
    FixedWindow = 2,
    /// `limiter_decision::algorithm::sliding_log`.
    SlidingLog = 3,
    /// `limiter_decision::algorithm::sliding_counter`.
    SlidingCounter = 4,
    /// `limiter_decision::algorithm::sliding_slots`.
    SlidingSlots = 5,
}

/// The role of a limit: what follows from being over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// The packet is over the rule: its action follows.
    Hard = 0,
    /// The packet passes and is marked, if the hard limits of the rule allow it. It is not charged
    /// to this limit.
    Soft = 1,
    /// Like [`Role::Hard`], but only packets over the preceding soft limit ask for it and are
    /// charged to it: the excess bucket of RFC 4115.
    Excess = 2,
}

impl Role {
    /// The role with a number.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Soft,
            2 => Self::Excess,
            _ => Self::Hard,
        }
    }
}

/// A limit of a rule. The meaning of `a`, `b` and the three bytes after them depends on the
/// algorithm; constructors and getters interpret them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct LimitSpec {
    a: u64,
    b: u64,
    c: u8,
    d: u8,
    e: u8,
    count: u8,
    algorithm: u8,
    /// Role of the limit in its rule: a [`Role`].
    pub role: u8,
    /// Index of its first word in the bucket.
    pub first: u8,
    /// Number of words, at least 1. `first + words` is at most [`WORDS`].
    pub words: u8,
}

const _: () = assert!(size_of::<LimitSpec>() == 24);

impl LimitSpec {
    /// A token bucket, or a leaky bucket whose `tolerance` is the backlog. Takes only the rate from
    /// `limit`, not the rule.
    pub const fn of_rate(algorithm: Algorithm, limit: &Limit, role: Role) -> Self {
        Self {
            a: limit.increment,
            b: limit.tolerance,
            c: limit.shift | (limit.full & Limit::CUT) << 1,
            d: limit.full & Limit::LARGEST,
            e: 0,
            count: limit.count,
            algorithm: algorithm as u8,
            role: role as u8,
            first: 0,
            words: 1,
        }
    }

    /// A limit that counts in windows.
    pub const fn of_window(algorithm: Algorithm, limit: &WindowLimit, role: Role) -> Self {
        Self {
            a: limit.width,
            b: limit.limit,
            c: limit.count_bits,
            d: limit.shift,
            e: limit.slots,
            count: limit.count,
            algorithm: algorithm as u8,
            role: role as u8,
            first: 0,
            words: match algorithm {
                Algorithm::SlidingSlots => limit.slots,
                Algorithm::SlidingCounter => 2,
                _ => 1,
            },
        }
    }

    /// A log. `count` is what it records: anything of which a packet has none or one.
    pub const fn of_log(limit: &LogLimit, count: Count, role: Role) -> Self {
        Self {
            a: limit.window,
            b: 0,
            c: 0,
            d: 0,
            e: limit.size,
            count: count as u8,
            algorithm: Algorithm::SlidingLog as u8,
            role: role as u8,
            first: 0,
            words: limit.size.saturating_add(1),
        }
    }

    /// The limit with its words at another place.
    #[must_use]
    pub const fn at(self, first: u8) -> Self {
        Self { first, ..self }
    }

    /// Bits that the unit of [`LimitSpec::longest_wait`] drops: the unit is 65.5 µs.
    const WAIT_BITS: u32 = 16 + TICK_BITS;

    /// The longest possible [`LimitSpec::longest_wait`].
    pub const MAX_WAIT: Ticks = Ticks::new(0x7fff << Self::WAIT_BITS);

    /// The token or leaky bucket with a longest wait: packets over the limit wait up to so long
    /// until they conform. Rounded down to a multiple of 65.5 µs, at most [`LimitSpec::MAX_WAIT`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked")]
    pub const fn with_longest_wait(self, longest: Ticks) -> Self {
        let units = longest.get() >> Self::WAIT_BITS;
        let units = if units > 0x7fff { 0x7fff } else { units };
        Self { d: self.d & Limit::LARGEST | (units >> 8) as u8, e: (units & 0xff) as u8, ..self }
    }

    /// The two bytes of the longest wait of a token or leaky bucket, the high byte first.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn wait(&self) -> [u8; 2] {
        [self.d & !Limit::LARGEST, self.e]
    }

    /// The longest wait of a token or leaky bucket in ticks.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn wait_ticks(&self) -> u64 {
        let [high, low] = self.wait();
        ((high as u64) << 8 | low as u64) << Self::WAIT_BITS
    }

    /// How long a packet over the limit may wait to conform; zero if packets never wait.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn longest_wait(&self) -> Ticks {
        if self.is_rate() { Ticks::new(self.wait_ticks()) } else { Ticks::ZERO }
    }

    /// The rate with the longest wait added to its tolerance: packets over that are dropped.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn rate_with_wait(&self) -> Limit {
        let rate = self.rate();
        Limit { tolerance: rate.tolerance.wrapping_add(self.wait_ticks()), ..rate }
    }

    /// True for a hard token bucket of packets or bytes, in the word with this index, whose packets
    /// do not wait.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_plain(&self, index: u8) -> bool {
        // A single comparison: these fields are zero, except that the number of bytes is one.
        let count = self.count & !(Count::Bytes as u8);
        let [high, low] = self.wait();
        self.algorithm | self.role | self.first ^ index | count | high | low
            == Algorithm::TokenBucket as u8 | Role::Hard as u8 | Count::Packets as u8
    }

    /// The units of a frame for a plain limit. Without a branch, of which the verifier would walk
    /// both sides.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn plain_units(&self, size: FrameSize) -> u64 {
        let bytes = (self.count as u64).wrapping_neg();
        size.bytes() & bytes | size.packets() & !bytes
    }

    /// The rate of a token or leaky bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn rate(&self) -> Limit {
        Limit {
            increment: self.a,
            tolerance: self.b,
            rule: 0,
            since: 0,
            shift: self.c & !Self::CUT,
            count: self.count,
            kind: Kind::Limited as u8,
            full: self.d & Limit::LARGEST | (self.c & Self::CUT) >> 1,
            action: 0,
            ended: 0,
        }
    }

    /// True for a token or a leaky bucket: its word holds a debt in time.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_rate(&self) -> bool {
        self.algorithm <= Algorithm::LeakyBucket as u8
    }

    /// [`Limit::is_largest`] for a token or a leaky bucket, otherwise false.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_largest(&self) -> bool {
        // The shift of a window is below 64, so it never sets this bit.
        self.d & Limit::LARGEST != 0
    }

    /// Bit of [`LimitSpec::is_cut_on_trial`], above the shift of a rate.
    const CUT: u8 = Limit::CUT << 1;

    /// [`Limit::is_cut_on_trial`] for a token or a leaky bucket, otherwise false.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_cut_on_trial(&self) -> bool {
        // The count bits of a window are fewer than 64, so they never set this bit.
        self.c & Self::CUT != 0
    }

    /// Sets or clears [`LimitSpec::is_cut_on_trial`] where it applies: not for a limit whose
    /// packets wait, because they also owe more than the limit.
    #[must_use]
    pub const fn with_cut_on_trial(self, cut: bool) -> Self {
        let c = self.c & !Self::CUT;
        let cut = cut && self.is_rate() && self.wait_ticks() == 0;
        Self { c: if cut { c | Self::CUT } else { c }, ..self }
    }

    /// Sets or clears [`LimitSpec::is_largest`] where it applies.
    #[must_use]
    pub const fn with_largest(self, largest: bool) -> Self {
        if self.is_rate() {
            let d = self.d & !Limit::LARGEST;
            Self { d: if largest { d | Limit::LARGEST } else { d }, ..self }
        } else {
            self
        }
    }

    /// The windows of a limit that counts in windows.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn window(&self) -> WindowLimit {
        WindowLimit {
            width: self.a,
            limit: self.b,
            count_bits: self.c,
            shift: self.d,
            slots: self.e,
            count: self.count,
            reserved: [0; 4],
        }
    }

    /// The log of a limit with a log.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn log(&self) -> LogLimit {
        LogLimit { window: self.a, size: self.e, reserved: [0; 7] }
    }

    /// The algorithm of the limit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn algorithm(&self) -> Algorithm {
        match self.algorithm {
            1 => Algorithm::LeakyBucket,
            2 => Algorithm::FixedWindow,
            3 => Algorithm::SlidingLog,
            4 => Algorithm::SlidingCounter,
            5 => Algorithm::SlidingSlots,
            _ => Algorithm::TokenBucket,
        }
    }

    /// The unit that the limit counts.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn counts(&self) -> Count {
        Count::from_raw(self.count)
    }

    /// The consequence of being over the limit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn role(&self) -> Role {
        Role::from_raw(self.role)
    }

    /// True if the words of this limit mean the same under `other`, wherever they are stored: the
    /// same limit, or the same windows with another number.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn same_state(&self, other: &Self) -> bool {
        // Ignores the number of a window, and the burst of a rate. Bit operations instead of
        // branches, of which the verifier walks both sides.
        let rate = (self.is_rate() as u64).wrapping_neg();
        let number = (self.b ^ other.b) & rate;
        // A longer wait does not change the meaning of a rate's word.
        let wait = (self.e ^ other.e) as u64 & !rate;
        let small =
            (self.c ^ other.c) | (self.count ^ other.count) | (self.algorithm ^ other.algorithm);
        (self.a ^ other.a) | number | wait | small as u64 == 0
    }

    /// True if `other` is a log of the same window that counts the same, possibly with another
    /// size.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn same_log(&self, other: &Self) -> bool {
        let log = Algorithm::SlidingLog as u8;
        let small = (self.algorithm ^ log) | (other.algorithm ^ log) | (self.count ^ other.count);
        (self.a ^ other.a) | small as u64 == 0
    }
}

/// What happens to a rule when the daemon has given no sign of life for too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OnLoss {
    /// The rule stays in force.
    #[default]
    Keep = 0,
    /// The rule only counts, until a daemon runs again.
    Shadow = 1,
}

impl OnLoss {
    /// The name in rule files and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Shadow => "shadow",
        }
    }
}

/// A rule of a table, ready for the data path: the value of the `RECORDS` array.
///
/// Immutable while any generation in force refers to its slot; a changed rule gets another slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Record {
    /// Rule number: the index of its counters.
    pub rule: u32,
    /// The generation in which the slot was filled: what was resolved earlier meant another rule.
    pub since: u32,
    /// One more than the index of the shared budget to which its limits are charged; 0 if each key
    /// has its own bucket.
    pub budget: u32,
    /// The action on a packet over a hard limit: an index into `ACTIONS`.
    pub action: u16,
    /// The action on a packet over a soft limit: an index into `ACTIONS`.
    pub soft_action: u16,
    /// Kind of the rule: a [`Kind`].
    pub kind: u8,
    /// Number of `limits`.
    pub count: u8,
    /// A [`super::Full`], for keys with their own bucket.
    pub full: u8,
    /// An [`OnLoss`].
    pub on_loss: u8,
    /// The places of limits that nodes share: bit n is set for limit n. While its [`super::Lease`]
    /// is valid, only the lease decides; otherwise the limit is this node's own share.
    pub leased: u8,
    /// The places of shared limits that pass nothing without a valid lease; and above them, from
    /// [`Record::KEYLESS`] on, the places that pass nothing for a key without leases.
    pub closed: u8,
    /// When the rule left force, like [`Limit::ended`].
    pub ended: u16,
    /// A hash of the shared budget's name, which identifies it when the daemon reads the maps back.
    pub budget_tag: u64,
    /// The limits of the rule. The place of a limit is its identity across rule changes.
    pub limits: [LimitSpec; MAX_LIMITS],
}

const _: () = assert!(size_of::<Record>() == 128 && MAX_LIMITS <= Record::KEYLESS as usize);

impl Record {
    /// The first bit in `closed` of the places that pass nothing for a key without leases.
    pub const KEYLESS: u32 = 4;

    /// True if the limit at `place`, 0 to 3, passes nothing for a key without leases.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn needs_leases(&self, place: u32) -> bool {
        (self.closed as u32 >> Self::KEYLESS) >> (place & (Self::KEYLESS - 1)) & 1 != 0
    }

    /// True if the rule passes everything.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_unlimited(&self) -> bool {
        self.kind == Kind::Unlimited as u8
    }

    /// True if the rule drops everything: it has no limits, drops keys without a bucket, and none
    /// of its keys gets one.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_block(&self) -> bool {
        self.count == 0 && self.full == super::Full::Drop as u8 && !self.is_unlimited()
    }

    /// The only limit, or the only two, if they are plain ([`LimitSpec::is_plain`]) and not shared,
    /// as in most rules.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn plain(&self) -> Option<(&LimitSpec, Option<&LimitSpec>)> {
        let [first, second, ..] = &self.limits;
        if self.leased != 0 || !first.is_plain(0) {
            None
        } else if self.count == 1 {
            Some((first, None))
        } else if self.count == 2 && second.is_plain(1) {
            Some((first, Some(second)))
        } else {
            None
        }
    }

    /// True if the source table can hold the rule: it passes everything, or has one hard token
    /// bucket of packets or bytes for each key and only drops packets over it.
    pub const fn is_compact(&self) -> bool {
        let [first, ..] = &self.limits;
        let is_plain = self.count == 1 && first.is_plain(0) || self.is_unlimited();
        let extra = self.leased as u32 | self.closed as u32 | self.on_loss as u32 | self.budget;
        is_plain && extra | self.action as u32 | self.soft_action as u32 == 0
    }

    /// The rule in the form of the source table, for keys of a rule that [`Record::is_compact`].
    pub const fn limit(&self) -> Limit {
        let [first, ..] = &self.limits;
        let Self { rule, since, kind, full, ended, .. } = *self;
        let rate = first.rate();
        Limit { rule, since, kind, full: full | rate.full, ended, ..rate }
    }

    /// What to do with packets of keys that get no bucket.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn when_full(&self) -> super::Full {
        super::Full::from_raw(self.full)
    }

    /// True if the rule only counts, with or without a daemon.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_shadow(&self, daemon_lost: bool) -> bool {
        self.kind == Kind::Shadow as u8 || daemon_lost && self.on_loss == OnLoss::Shadow as u8
    }
}

/// The state of one key of a table, or of one shared budget: the value of `KEYED` and `BUDGETS`.
///
/// `resolved` and `words` are only changed by compare-and-exchange, the counters by atomic
/// addition. Each word is 63 bits of an algorithm's state above one scale bit; see
/// `limiter_decision::table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct KeyedBucket {
    /// The record to which the key was resolved: [`crate::bucket::Resolved`].
    pub resolved: u64,
    /// Packets that passed since the entry was made.
    pub passed: u64,
    /// Packets that were dropped since the entry was made.
    pub dropped: u64,
    /// Time of the last packet, in ticks.
    pub used: u64,
    /// The state of the limits.
    pub words: [u64; WORDS],
}

const _: () = assert!(size_of::<KeyedBucket>() == 32 + 8 * WORDS);
