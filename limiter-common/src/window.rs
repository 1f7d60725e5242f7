//! Limits that count in windows: the limit, the word, and the window of an instant.

use core::hint::black_box;

use bytemuck::{Pod, Zeroable};

use crate::time::Ticks;

/// Bits of a word that an algorithm uses.
pub const STATE_BITS: u32 = 63;

/// The longest window in nanoseconds: 366 days.
pub const MAX_WIDTH: u64 = 366 * 86_400_000_000_000;

/// How late a clock reading may be, in nanoseconds: 2^34, 17 s. A virtual CPU may be suspended for
/// seconds between reading and charge.
pub const LATE: u64 = 1 << 34;

/// The most slots of `limiter_decision::algorithm::sliding_slots`: one cache line of words.
pub const MAX_SLOTS: usize = 8;

/// The most packets in a log: with its head it fills the words of a bucket.
pub const MAX_SIZE: u8 = 31;

/// A limit on a count in a window, ready for the data path.
///
/// Made only by the compile step, which rejects a `limit` of 0 or above [`WindowLimit::max_limit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WindowLimit {
    /// Length of one window, or of one slot, in nanoseconds: 1 to [`MAX_WIDTH`].
    pub width: u64,
    /// Units that may pass in the whole window.
    pub limit: u64,
    /// Bits of a word that hold the count; the others hold the window's number.
    pub count_bits: u8,
    /// Bits that are cut from the width, so that `limit * (width >> shift) < 2^62`. Only
    /// `limiter_decision::algorithm::sliding_counter` multiplies.
    pub shift: u8,
    /// Slots of the window: 1 without slots, otherwise 2, 4 or 8.
    pub slots: u8,
    /// A [`crate::wire::Count`].
    pub count: u8,
    /// Padding; zero.
    pub reserved: [u8; 4],
}

const _: () = assert!(size_of::<WindowLimit>() == 24);

impl WindowLimit {
    /// The `count_bits` available with windows of `width` nanoseconds: the other bits must hold the
    /// number of the last window within the range of [`Ticks`]. 34 for a second, 54 for a week, 59
    /// for 366 days.
    pub const fn count_bits_of(width: u64) -> u8 {
        let range = Ticks::new(u64::MAX).as_nanos();
        let last = match (range + LATE).checked_div(width) {
            // One more if the range begins inside a window, and one for [`Self::is_late`].
            Some(windows) => windows + 2,
            None => u64::MAX,
        };
        let number_bits = u64::BITS - last.leading_zeros();
        let [low, ..] = STATE_BITS.saturating_sub(number_bits).to_le_bytes();
        low
    }

    /// The largest count that fits in a word.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn max_limit(&self) -> u64 {
        (1 << (self.count_bits & 63)) - 1
    }

    /// The width by which the sliding counter multiplies.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn cut_width(&self) -> u64 {
        self.width >> (self.shift & 63)
    }

    /// Words of a limit in slots. Masked, so that the verifier sees the bound of a loop over them.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn words(&self) -> u64 {
        ((self.slots as u64).wrapping_sub(1) & (MAX_SLOTS as u64 - 1)) + 1
    }

    /// The largest window number in a word; the next one is 0 again. It has as many bits as the
    /// clock's range has windows, so no idle time makes a number recur.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    const fn last_number(&self) -> u64 {
        (u64::MAX >> (u64::BITS - STATE_BITS)) >> (self.count_bits & 63)
    }

    /// A window's number as it is stored in a word.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn cut(&self, number: u64) -> u64 {
        number & self.last_number()
    }

    /// The window of `now`. Windows begin at multiples of the width since 1900. The number of a
    /// window on the wall clock must be passed to [`Self::cut`] before it is stored in a word.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn at(&self, now: Ticks, offset: WallOffset) -> Position {
        let nanos = now.as_nanos().wrapping_add(offset.0);
        let number = nanos.checked_div(self.width).unwrap_or_default();
        let elapsed = nanos.wrapping_sub(number.wrapping_mul(self.width));
        Position { number, elapsed }
    }

    /// All ones if window `stored` is after `number` by so little that a clock may be late: it
    /// begins less than [`LATE`] after the end of `number`. Otherwise 0. Without a branch.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn is_late(&self, number: u64, stored: u64) -> u64 {
        let after = self.cut(stored.wrapping_sub(number));
        // Equal numbers wrap around to a large value, so they do not count.
        let between = after.wrapping_sub(1).wrapping_mul(self.width);
        opaque_less(between & (u64::MAX >> 1), LATE)
    }

    /// Unpacks a word.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn unpack(&self, word: u64) -> Tally {
        Tally { number: word >> (self.count_bits & 63), count: word & self.max_limit() }
    }

    /// Packs a word. Both parts fit: the count is at most `limit`, and the number is from
    /// [`Self::at`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn pack(&self, tally: Tally) -> u64 {
        tally.number << (self.count_bits & 63) | tally.count & self.max_limit()
    }
}

/// A limit on the packets in any window, which are kept in a log, ready for the data path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct LogLimit {
    /// Length of the window in nanoseconds, at least 1.
    pub window: u64,
    /// Packets in it, 1 to [`MAX_SIZE`].
    pub size: u8,
    /// Padding; zero.
    pub reserved: [u8; 7],
}

const _: () = assert!(size_of::<LogLimit>() == 16);

/// The window of an instant, and the time since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The window's number.
    pub number: u64,
    /// Nanoseconds since its start.
    pub elapsed: u64,
}

/// The count of one window: the content of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The window's number.
    pub number: u64,
    /// Units that passed in it.
    pub count: u64,
}

impl Tally {
    /// The count, if this is window `number`. Without a branch.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn count_in(self, number: u64) -> u64 {
        self.count & opaque_less(self.number ^ number, 1)
    }
}

/// The offset from the monotonic clock to windows on the wall clock: nanoseconds from Monday, 1
/// January 1900, 00:00 UTC to boot.
///
/// Windows of every width begin at multiples of the width since that Monday, whenever the machine
/// booted: widths that divide a week are aligned to the weeks, days, hours and minutes of UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallOffset(u64);

impl WallOffset {
    /// Windows that start at boot.
    pub const BOOT: Self = Self(0);

    /// The latest offset, in 2475: plus a time since boot it is below 2^64.
    const MAX: u64 = u64::MAX - (1 << 58);

    /// Makes it from nanoseconds; later offsets are cut to the latest.
    pub const fn new(nanos: u64) -> Self {
        Self(if nanos > Self::MAX { Self::MAX } else { nanos })
    }

    /// Restores the result of [`WallOffset::nanos`].
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn from_raw(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The offset from both clocks, read together: nanoseconds since 1970 UTC, and since boot. A
    /// wall clock that was never set shows 1970, which is later after 1900 than any boot is ago.
    pub const fn of_clocks(realtime: u64, monotonic: u64) -> Self {
        /// From 1900 to 1970.
        const DAYS: u64 = 25_567;
        let since_1900 = realtime.saturating_add(DAYS * 86_400_000_000_000);
        Self::new(since_1900.saturating_sub(monotonic))
    }

    /// The offset in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }
}

/// All ones if `a < b`, otherwise zero; both below 2^63. Without a branch: the verifier walks both
/// sides of each, and eight words with two or three branches make too many paths.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn less(a: u64, b: u64) -> u64 {
    (a.wrapping_sub(b) >> 63).wrapping_neg()
}

/// [`less`] for `a` and `b` whose sizes the compiler knows: otherwise it would recognise the
/// comparison and make a branch of it.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn opaque_less(a: u64, b: u64) -> u64 {
    (black_box(a.wrapping_sub(b)) >> 63).wrapping_neg()
}

/// The larger number; both below 2^63, without a branch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn larger(a: u64, b: u64) -> u64 {
    a ^ (a ^ b) & opaque_less(a, b)
}

/// The smaller number; both below 2^63, without a branch.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub const fn smaller(a: u64, b: u64) -> u64 {
    a ^ (a ^ b) & opaque_less(b, a)
}
