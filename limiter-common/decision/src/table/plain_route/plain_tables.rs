//! The route for packets in plain tables, as most are: tables where the key has an up-to-date
//! bucket, and a rule of one or two plain limits. One look-up per table, then an exchange for each
//! limit, without accounts and mostly without subprograms.
//!
//! The order is that of the general route, [`crate::table::run_tables`]: check everywhere, charge
//! the source, charge everywhere. Tables where the packet's key is compact
//! ([`crate::table::keys::compact`]) are checked after the others, and charged before them. The
//! general route is for the rest: keys without an up-to-date bucket, other limits, ranges, flows,
//! and any consequence of a limit other than a drop. This route has then charged and counted
//! nothing.
//!
//! The buckets are kept from the check to the charge, in places without gaps. So the verifier walks
//! one path for each number of them, instead of one for each choice of tables, and every place is a
//! constant, through which it follows a pointer. Compact keys beside full ones are looked up again.

use limiter_common::bucket_key::BucketKey;
use limiter_common::verdict::Reason;
use limiter_common::wire::MAX_TABLES;

use super::compact_row;
use super::compact_row::{charge_compact, look_compact};
use super::plain_wide::{charge_full, look_full};
use crate::call::call;
#[cfg(doc)]
use crate::clock::SLACK;
use crate::engine::source::{count_drop, count_over, find_compact};
use crate::maps::{Kept, Maps};
use crate::outcome::{NO_REASON, Outcome, Packed};
use crate::register::Register;
use crate::rounds::Rounds;
use crate::stored::{StoredIn, either};
use crate::table::keys::compact::{compact_bit, compact_in};
use crate::table::keys::key::in_bit;
use crate::table::limits::weight::passed;
use crate::table::run::charge_source;
use crate::table::scratch::{CompactCharge, Scratch};

/// Runs a block for each place, unrolled.
macro_rules! each {
    ($label:lifetime, |$place:ident| $body:block) => {
        each!($label, |$place| $body, 0 1 2 3 4 5 6 7)
    };
    ($label:lifetime, |$place:ident| $body:block, $($number:literal)*) => {
        $label: {
            $({
                const $place: u32 = $number;
                $body
            })*
        }
    };
}

/// Keeps a bucket at a place, which is a constant.
macro_rules! put_at {
    ($kept:ident, $place:expr, $bucket:expr) => {
        if let Some(kept) = $kept.get_mut(($place) as usize) {
            *kept = Some($bucket);
        }
    };
}

/// Takes what is kept at a place, which is a constant.
macro_rules! take_at {
    ($kept:ident, $place:expr) => {
        $kept.get_mut(($place) as usize).and_then(Option::take)
    };
}

/// The tables that a packet is in.
#[derive(Clone, Copy)]
pub struct Row {
    /// The indices of the tables where its key is full, in sequence: four bits each.
    full: u32,
    full_count: u32,
}

impl Row {
    const NONE: Self = Self { full: 0, full_count: 0 };
}

/// The number of full keys that stands for the general route.
const GENERAL: u32 = MAX_TABLES + 1;

/// `full_count:8 | full:32`.
impl Register for Row {
    const LOST: Self = Self { full_count: GENERAL, ..Self::NONE };

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        let Self { full, full_count } = self;
        u64::from(full_count) << 32 | u64::from(full)
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self { full: (register & 0xffff_ffff) as u32, full_count: (register >> 32 & 0xf) as u32 }
    }
}

/// The end of the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// The plain route judged the packet: its outcome.
    Judged(Packed),
    /// Another CPU was faster at the compact key at a place: earlier charges stay. Only from
    /// [`judge_compact`].
    Overtaken(u32),
    /// The packet needs the general route. Nothing has been charged or counted.
    General,
}

impl Register for Plain {
    const LOST: Self = Self::General;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Self::Judged(outcome) => outcome.raw(),
            Self::Overtaken(place) => NO_REASON | (u64::from(place) + 1) << 32,
            Self::General => NO_REASON,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register & 0xff != NO_REASON {
            return Self::Judged(Packed::from_raw(register));
        }
        match register >> 32 {
            0 => Self::General,
            place => Self::Overtaken((place & 0xff) as u32 - 1),
        }
    }
}

impl From<Option<Packed>> for Plain {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn from(outcome: Option<Packed>) -> Self {
        outcome.map_or(Self::General, Self::Judged)
    }
}

/// Judges a packet whose facts are in the scratch, by `tables` tables and by the source table. The
/// packet may have arrived up to [`SLACK`] after the time in the scratch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_plain<W: Maps>(maps: &W, scratch: &Scratch, tables: u32) -> Plain {
    let row = call!(line_up(maps, scratch; tables));
    if row.full_count != 0 {
        return call!(judge_full(maps, scratch; row));
    }
    match call!(judge_compact(maps, scratch;)) {
        Plain::Overtaken(place) => {
            if place > 0 {
                scratch.conforms();
            }
            let outcome = call!(charge_compact(maps, scratch; place));
            let passes = || Packed::from_raw(scratch.source_outcome.get());
            Plain::Judged(outcome.unwrap_or_else(passes))
        }
        end => end,
    }
}

/// [`judge_plain`] for a packet without full keys.
#[expect(clippy::absurd_extreme_comparisons, reason = "the first place is 0")]
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_compact<W: Maps>(maps: &W, scratch: &Scratch) -> Plain {
    let compact_count = scratch.compact_keys.get();
    let mut kept: [Option<W::Kept>; MAX_TABLES as usize] =
        [None, None, None, None, None, None, None, None];
    each!('look, |PLACE| {
        if PLACE >= compact_count {
            break 'look;
        }
        match look_at_once(maps, scratch, PLACE) {
            Ok(bucket) => put_at!(kept, PLACE, W::Kept::of(bucket)),
            Err(outcome) => return outcome.into(),
        }
    });
    if let Err(outcome) = charge_source(maps, scratch) {
        return outcome.into();
    }
    each!('charge, |PLACE| {
        if PLACE >= compact_count {
            break 'charge;
        }
        let Some(bucket) = take_at!(kept, PLACE) else {
            return Plain::General;
        };
        if !exchange_compact::<W>(maps, scratch, bucket, PLACE) {
            return Plain::Overtaken(PLACE);
        }
    });
    let outcome = Packed::from_raw(scratch.source_outcome.get());
    Plain::Judged(if compact_count == 0 { outcome } else { passed(outcome) })
}

/// [`judge_plain`] for a packet with full keys.
#[expect(clippy::absurd_extreme_comparisons, reason = "the first place is 0")]
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn judge_full<W: Maps>(maps: &W, scratch: &Scratch, row: Row) -> Plain {
    let Row { full, full_count } = row;
    if full_count == GENERAL {
        return Plain::General;
    }
    let mut kept: [Option<W::Keyed>; MAX_TABLES as usize] =
        [None, None, None, None, None, None, None, None];
    each!('look, |PLACE| {
        if PLACE >= full_count {
            break 'look;
        }
        match look_full(maps, scratch, full >> (4 * PLACE) & 7, PLACE) {
            Ok(bucket) => put_at!(kept, PLACE, bucket),
            Err(outcome) => return outcome.into(),
        }
    });
    let has_compact = scratch.compact_keys.get() != 0;
    if has_compact {
        let outcome = call!(look_compact(maps, scratch;));
        if outcome.is_some() {
            return outcome.into();
        }
    }
    if let Err(outcome) = charge_source(maps, scratch) {
        return outcome.into();
    }
    if has_compact {
        let outcome = call!(charge_compact(maps, scratch; 0_u32));
        if outcome.is_some() {
            return outcome.into();
        }
    }
    each!('charge, |PLACE| {
        if PLACE >= full_count {
            break 'charge;
        }
        let Some(bucket) = take_at!(kept, PLACE) else {
            return Plain::General;
        };
        if let Err(outcome) = charge_full(maps, scratch, &bucket, PLACE) {
            return outcome.into();
        }
    });
    Plain::Judged(passed(Packed::from_raw(scratch.source_outcome.get())))
}

/// Finds the tables that contain a packet, and writes its compact keys into the scratch. Chooses
/// the general route if flows count. Without a branch for each table, after which the verifier
/// would walk on for each choice.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn line_up<W: Maps>(maps: &W, scratch: &Scratch, tables: u32) -> Row {
    scratch.is_recent();
    let general = Row { full_count: GENERAL, ..Row::NONE };
    if scratch.flows.get() != 0 {
        return general;
    }
    let key_facts = scratch.key_facts.get();
    let mut row = Row::NONE;
    let (mut mask, mut compact_count) = (0, 0);
    let mut rounds = Rounds::new();
    while let Some(index) = rounds.next(u64::from(MAX_TABLES)) {
        if index >= tables {
            break;
        }
        let (Some(table), Some(word)) = (
            maps.table(scratch.generation(), index),
            scratch.compact_key(scratch.unknown(compact_count)),
        ) else {
            return general;
        };
        let is_in = in_bit(table, &key_facts);
        let is_compact = is_in & compact_bit(table, &key_facts);
        let is_full = is_in ^ is_compact;
        // If this key is not compact, the next one overwrites it.
        word.set(compact_in(table, &scratch.facts, &key_facts).word());
        row.full |= (index & is_full.wrapping_neg()) << ((row.full_count & 7) * 4);
        row.full_count += is_full;
        compact_count += is_compact;
        mask |= is_compact << index;
    }
    scratch.compact.set(mask);
    scratch.compact_keys.set(compact_count);
    scratch.full_keys.set(row.full_count);
    row
}

/// Checks the limit of a compact key, and stores the exchange that charges it. Returns its bucket.
/// An error ends the route: the outcome of a packet over the limit, which is counted, or none.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn look_at_once<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    place: u32,
) -> Result<StoredIn<W>, Option<Packed>> {
    let (Some(word), Some(left)) = (scratch.compact_key(place), scratch.compact_charge(place))
    else {
        return Err(None);
    };
    let Some(bucket) = find_compact(maps, word) else {
        return Err(None);
    };
    let is_first = place == 0;
    let look = either!(&bucket, bucket => compact_row::look(maps, scratch, bucket, is_first));
    let Some(compact_row::Look { exchange, rule }) = look else {
        return Err(None);
    };
    let Some(change) = exchange else {
        #[cfg(not(target_arch = "bpf"))]
        scratch.stop_in_row(place);
        let packets = scratch.size::<W>().packets();
        if is_first {
            let bucket_key = BucketKey::compact(word.get());
            either!(&bucket, bucket => count_drop(maps, &bucket_key, bucket, packets));
        } else {
            // Not inline: the verifier would walk every path of it for each place.
            call!(count_over(maps; &BucketKey::compact(word.get()), packets));
        }
        return Err(Some(Outcome::new(Reason::OverLimit, rule).pack()));
    };
    left.set(CompactCharge { change, rule, ..CompactCharge::none() });
    Ok(bucket)
}

/// Charges a compact key by the stored exchange, and counts the packet; false if another CPU was
/// faster.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn exchange_compact<W: Maps>(maps: &W, scratch: &Scratch, kept: W::Kept, place: u32) -> bool {
    let (Some(word), Some(charge)) = (scratch.compact_key(place), scratch.compact_charge(place))
    else {
        return false;
    };
    let bucket_key = BucketKey::compact(word.get());
    let Some(bucket) = kept.bucket(&bucket_key) else {
        return false;
    };
    let charge = charge.get();
    either!(&bucket, bucket => compact_row::exchange(maps, scratch, &bucket_key, bucket, charge))
}
