//! The conforming sources: how often each sends, and from where.

use limiter_tests::live_frames::Regular;

/// Limit of every source, in packets a second: nobody here comes near it.
pub const LIMIT: u32 = 2_000;

/// A group of conforming sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Known before the flood, 1 packet a second each.
    Slow,
    /// Known before the flood, 20 packets a second each.
    Medium,
    /// Known before the flood, 1,000 packets a second.
    Fast,
    /// First seen amid the flood, 20 packets a second each.
    New,
    /// First seen amid the flood, 1 packet a second each.
    NewSlow,
}

impl Class {
    /// The classes, in the order of [`Class::index`].
    pub const ALL: [Self; Self::COUNT] =
        [Self::Slow, Self::Medium, Self::Fast, Self::New, Self::NewSlow];

    /// Number of classes.
    pub const COUNT: usize = 5;

    /// Classes that were there before the flood.
    pub const KNOWN: [Self; 3] = [Self::Slow, Self::Medium, Self::Fast];

    /// Index of the class in arrays of all of them.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "1/s",
            Self::Medium => "20/s",
            Self::Fast => "1,000/s",
            Self::New => "new, 20/s",
            Self::NewSlow => "new, 1/s",
        }
    }

    /// For the counter that counts it, together with nobody else.
    pub const fn counter(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Medium => "medium",
            Self::Fast => "fast",
            Self::New => "new",
            Self::NewSlow => "new_slow",
        }
    }

    /// Prefix of the sources of the class.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Slow => "10.1.0.0/16",
            Self::Medium => "10.2.0.0/16",
            Self::Fast => "10.3.0.0/16",
            Self::New => "10.64.0.0/10",
            Self::NewSlow => "10.128.0.0/10",
        }
    }

    /// Number of sources of the class, and the packets that each sends a second.
    pub const fn size(self) -> (u32, u32) {
        match self {
            Self::Slow | Self::NewSlow => (100, 1),
            Self::Medium => (10, 20),
            Self::Fast => (1, 1_000),
            Self::New => (20, 20),
        }
    }

    /// Traffic of the class. Each source is in a /24 of its own, and new ones are others in every
    /// `step`.
    pub fn regular(self, step: u8) -> Regular {
        let (count, each) = self.size();
        let second = match self {
            Self::Slow => 1,
            Self::Medium => 2,
            Self::Fast => 3,
            Self::New => 64 + step % 64,
            Self::NewSlow => 128 + step % 64,
        };
        let first = u32::from_be_bytes([10, second, 0, 1]);
        Regular { first, count, per_second: each * count }
    }
}
