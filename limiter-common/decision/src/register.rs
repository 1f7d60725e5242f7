//! The conversion of arguments and answers of subprograms ([`mod@crate::subprograms`]) to
//! registers.

use core::cell::Cell;

use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{EntryKind, Listed, OwnBudget, RuleSetHeader};

/// A value that crosses a call of a BPF function in a register of 64 bits: as an argument, or as
/// the answer.
pub trait Register: Copy {
    /// The answer of a subprogram that finds no memory of its own. It always does; the verifier
    /// asks.
    const LOST: Self;

    /// The value as 64 bits.
    fn to_register(self) -> u64;

    /// Takes what [`Register::to_register`] gave.
    fn of_register(register: u64) -> Self;

    /// Leaves the part of an answer that has no room in the register.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn put_out_parameter<'a>(self, _out: impl FnOnce() -> Option<&'a OutParameter>) {}

    /// The answer with what [`Register::put_out_parameter`] has left.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[must_use]
    fn with_out_parameter<'a>(self, _out: impl FnOnce() -> Option<&'a OutParameter>) -> Self {
        self
    }
}

/// The lower half of a register, of a value that has no more.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn half(value: impl Register) -> u32 {
    (value.to_register() & 0xffff_ffff) as u32
}

/// The part of an answer that has no room in a register: this CPU's own.
#[derive(Debug, Default)]
#[repr(C)]
pub struct OutParameter {
    /// Two words.
    pub words: [Cell<u64>; 2],
}

/// Values that are numbers.
macro_rules! number {
    ($($type:ty: |$value:ident| $to:expr, |$raw:ident| $of:expr, lost $lost:expr;)*) => {$(
        impl $crate::register::Register for $type {
            const LOST: Self = $lost;

            #[cfg_attr(target_arch = "bpf", inline(always))]
            fn to_register(self) -> u64 {
                let $value = self;
                $to
            }

            #[cfg_attr(target_arch = "bpf", inline(always))]
            fn of_register($raw: u64) -> Self {
                $of
            }
        }
    )*};
}

/// Makes a [`Register`] of an enum without fields: its variants, the last of which stands for every
/// other number, and the one that is the answer of a lost subprogram.
macro_rules! variants {
    ($type:ty: $($variant:ident)*, else $last:ident; lost $lost:ident) => {
        impl $crate::register::Register for $type {
            const LOST: Self = Self::$lost;

            #[cfg_attr(target_arch = "bpf", inline(always))]
            fn to_register(self) -> u64 {
                self as u64
            }

            #[cfg_attr(target_arch = "bpf", inline(always))]
            fn of_register(register: u64) -> Self {
                $(if register == Self::$variant as u64 {
                    return Self::$variant;
                })*
                Self::$last
            }
        }
    };
}

pub(crate) use {number, variants};

number! {
    u64: |value| value, |raw| raw, lost 0;
    u32: |value| u64::from(value), |raw| (raw & 0xffff_ffff) as u32, lost 0;
    u8: |value| u64::from(value), |raw| (raw & 0xff) as u8, lost 0;
    bool: |value| u64::from(value), |raw| raw & 1 != 0, lost false;
    FrameSize: |size| size.raw(), |raw| Self::from_raw(raw), lost Self::from_raw(0);
    Ticks: |value| value.get(), |raw| Self::new_within(raw), lost Self::ZERO;
    Slot: |value| u64::from(value.index()), |raw| Self::new((raw & 0xffff_ffff) as u32),
        lost Self::NONE;
    Generation: |value| u64::from(value.get()), |raw| Self::new(raw), lost Self::new(0);
    Resolved: |value| value.raw(), |raw| Self::from_raw(raw), lost Self::from_raw(0);
    Word: |value| value.raw(), |raw| Self::from_raw(raw), lost Self::from_raw(0);
    EntryKind: |kind| u64::from(kind.index()), |raw| Self::of_number((raw & 3) as u32),
        lost Self::Keyed;
    Reason: |reason| reason as u64, |raw| Self::from_index((raw & 0xffff_ffff) as u32),
        lost Self::Contended;
}

const NO_SLOT: u64 = u64::MAX;

variants!(OwnBudget: Replies, else Bans; lost Bans);

impl Register for Option<Slot> {
    const LOST: Self = None;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(slot) => u64::from(slot.index()),
            None => NO_SLOT,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register == NO_SLOT { None } else { Some(Register::of_register(register)) }
    }
}

impl Register for RuleSetHeader {
    const LOST: Self = Self::from_raw(0);

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        self.raw()
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        Self::from_raw(register)
    }
}

impl Register for Option<Listed> {
    const LOST: Self = None;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(listed) => listed as u64,
            None => 0,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        match register {
            1 => Some(Listed::Allow),
            2 => Some(Listed::Deny),
            3 => Some(Listed::Management),
            _ => None,
        }
    }
}

impl Register for () {
    const LOST: Self = ();

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        0
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(_register: u64) -> Self {}
}
