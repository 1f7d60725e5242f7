//! How much is measured.

use std::time::Duration;

/// Rate that the flood is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// No flood.
    None,
    /// Packets a second.
    PerSecond(u32),
    /// Packets a second, and how often each source sends, a tenth of a second apart.
    Again(u32, u32),
    /// As fast as the generator can.
    Fastest,
}

/// The floods, how often, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// In this order, each over the table that the last one left.
    pub rates: &'static [Rate],
    /// How often everything is done, each time with another order of the tools.
    pub rounds: usize,
    /// How long conforming sources send under each rate.
    pub step: Duration,
}

impl Effort {
    /// For the published figure.
    pub const FULL: Self = Self {
        rates: &[
            Rate::None,
            Rate::PerSecond(25_000),
            Rate::PerSecond(100_000),
            Rate::PerSecond(200_000),
            Rate::PerSecond(500_000),
            Rate::PerSecond(1_000_000),
            Rate::Again(100_000, 2),
            Rate::Again(100_000, 4),
            Rate::Again(100_000, 16),
            Rate::PerSecond(2_000_000),
            Rate::Fastest,
        ],
        rounds: 3,
        step: Duration::from_secs(10),
    };

    /// For a quick look.
    pub const QUICK: Self = Self {
        rates: &[
            Rate::None,
            Rate::PerSecond(100_000),
            Rate::PerSecond(1_000_000),
            Rate::Again(100_000, 2),
            Rate::Again(100_000, 4),
            Rate::Again(100_000, 16),
        ],
        rounds: 1,
        step: Duration::from_secs(10),
    };
}
