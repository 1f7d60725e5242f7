//! Limits over several nodes: how they share them.

use std::fmt;
use std::time::Duration;

use limiter_sharing::OnPartition;

/// Thousandths of a whole: 0 to 1000. Shown in per cent, as in `2.5%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    /// A share of so many thousandths; `None` above 1000.
    pub const fn new(thousandths: u16) -> Option<Self> {
        if thousandths > 1000 { None } else { Some(Self(thousandths)) }
    }

    /// Reads one as it is written in a rule file: `25%`, `2.5%`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.strip_suffix('%')?;
        let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(tenth) || !(1..=3).contains(&whole.len()) || tenth.len() != 1 {
            return None;
        }
        Self::new(whole.parse::<u16>().ok()? * 10 + tenth.parse::<u16>().ok()?)
    }

    /// Thousandths of the whole.
    pub const fn thousandths(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}%", self.0 / 10),
            tenth => write!(f, "{}.{tenth}%", self.0 / 10),
        }
    }
}

/// How nodes share limits: docs/cluster.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sharing {
    /// Time between two calls for a limit: whole microseconds, 50 ms to 10 s.
    pub sync: Duration,
    /// Part of the rate that nodes have without asking, all together.
    pub share: Share,
    /// Part of the burst that nodes have without asking, all together.
    pub share_of_burst: Share,
    /// Part of the burst, or of a window's quota, that a node holds at most; at least what arrives
    /// in a sync period at the whole rate.
    pub lease_cap: Share,
    /// Behaviour of a node without contact to the store.
    pub on_partition: OnPartition,
    /// True if the shares are kept out of what the store gives, so that a partition adds nothing.
    pub strict: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            sync: Duration::from_millis(200),
            share: Share(250),
            share_of_burst: Share(100),
            lease_cap: Share(250),
            on_partition: OnPartition::Share,
            strict: false,
        }
    }
}
