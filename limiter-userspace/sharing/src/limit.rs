//! A limit that nodes share: its numbers, what follows from them, and which are rejected.

use super::rate::{EXACT, Rate, mul_div};

/// Shortest sync period, in microseconds.
pub const SYNC_MIN: u64 = 50_000;
/// Longest sync period, in microseconds.
pub const SYNC_MAX: u64 = 10_000_000;
/// Longest time, in microseconds, in which an empty bucket may refill: 17 years.
pub const HORIZON: u64 = 1 << 49;

/// What a node does for a shared limit without contact to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnPartition {
    /// Limits each source to the node's share.
    #[default]
    Share,
    /// Applies the whole limit on this node alone.
    Open,
    /// Passes nothing.
    Closed,
}

impl OnPartition {
    /// All variants, with their names in rule files.
    pub const NAMED: [(&str, Self); 3] = [
        (Self::Share.name(), Self::Share),
        (Self::Open.name(), Self::Open),
        (Self::Closed.name(), Self::Closed),
    ];

    /// Name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// Settings of a shared limit, as a rule has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Rate over all nodes.
    pub rate: Rate,
    /// Burst over all nodes, in units: 1 to 2^51.
    pub burst: u64,
    /// Units of the largest packet: 1 if packets are counted.
    pub largest: u64,
    /// Sync period in microseconds: [`SYNC_MIN`] to [`SYNC_MAX`].
    pub sync: u64,
    /// Number of nodes, 1 to 65,535.
    pub nodes: u64,
    /// Thousandths of the rate that all nodes together have without asking: 0 to 1000.
    pub share_of_rate: u64,
    /// Thousandths of the burst that all nodes together have without asking: 0 to 1000.
    pub share_of_burst: u64,
    /// Largest part of the burst that one node holds, in thousandths: 0 to 1000.
    pub lease_cap: u64,
    /// What to do without contact to the store.
    pub on_partition: OnPartition,
    /// True if the store gives out only what is left beside the shares, so that a partition adds
    /// nothing.
    pub strict: bool,
    /// True if it is always leased, like a budget; otherwise only once a source uses its share.
    pub always: bool,
}

/// Why settings are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The burst is 0, beyond 2^51, or takes longer than 17 years to refill.
    #[error("a burst of {0} units is out of range for its rate")]
    Burst(u64),
    /// The largest packet never conforms.
    #[error("a packet of {largest} units never fits into a burst of {burst}")]
    Packet {
        /// Units of the largest packet.
        largest: u64,
        /// Burst of the limit, without the shares if it is strict.
        burst: u64,
    },
    /// The sync period is out of range.
    #[error("a sync period of {0} us is not within 50 ms to 10 s")]
    Sync(u64),
    /// The burst is too small for the rate: tokens do not come back in time.
    #[error("the burst must hold two sync periods of the rate: at least {needed} units")]
    BurstOfSync {
        /// Smallest burst that suffices.
        needed: u64,
    },
    /// There are no nodes, or too many.
    #[error("{0} nodes are not within 1 to 65,535")]
    Nodes(u64),
    /// A share is above the whole, or is the whole of a strict limit.
    #[error("a share of {0} thousandths is out of range")]
    Share(u64),
}

/// A checked shared limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedLimit {
    settings: Settings,
    central: (Rate, u64),
    cold: Option<(Rate, u64)>,
}

impl SharedLimit {
    /// Checks settings.
    pub fn new(settings: Settings) -> Result<Self, LimitError> {
        let Settings { rate, burst, largest, sync, nodes, .. } = settings;
        if !(1..EXACT / 4).contains(&burst) || rate.micros_of(burst) > HORIZON {
            return Err(LimitError::Burst(burst));
        }
        if !(SYNC_MIN..=SYNC_MAX).contains(&sync) {
            return Err(LimitError::Sync(sync));
        }
        if !(1..=65_535).contains(&nodes) {
            return Err(LimitError::Nodes(nodes));
        }
        let whole = if settings.strict { 999 } else { 1000 };
        for share in [settings.share_of_rate, settings.share_of_burst] {
            if share > whole {
                return Err(LimitError::Share(share));
            }
        }
        if settings.lease_cap > 1000 {
            return Err(LimitError::Share(settings.lease_cap));
        }
        let cold_burst = burst * settings.share_of_burst / 1000 / nodes;
        let cold = if cold_burst >= largest {
            rate.share(settings.share_of_rate, nodes).map(|rate| (rate, cold_burst))
        } else {
            None
        };
        let central = match cold {
            Some(_) if settings.strict => {
                let left = rate.share(1000 - settings.share_of_rate, 1);
                (left.unwrap_or(rate), burst - cold_burst * nodes)
            }
            _ => (rate, burst),
        };
        if largest == 0 || largest > central.1 {
            return Err(LimitError::Packet { largest, burst: central.1 });
        }
        let needed = central.0.units_in(2 * sync).max(largest);
        if central.1 < needed {
            return Err(LimitError::BurstOfSync { needed });
        }
        Ok(Self { settings, central, cold })
    }

    /// This limit with another number of nodes. Checked like [`SharedLimit::new`].
    pub fn among(&self, nodes: u64) -> Result<Self, LimitError> {
        Self::new(Settings { nodes, ..self.settings })
    }

    /// The settings of this limit.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Rate and burst that the store accounts for: everything, or if strict, what is left beside
    /// the shares.
    pub fn central(&self) -> (Rate, u64) {
        self.central
    }

    /// Rate and burst of this node's share; `None` if the share cannot hold a packet.
    pub fn cold(&self) -> Option<(Rate, u64)> {
        self.cold
    }

    /// Time in microseconds for which a granted unit may be used: four sync periods.
    pub fn life(&self) -> u64 {
        4 * self.settings.sync
    }

    /// Length of the store's epochs in microseconds: one and a half lives, so that units returned
    /// at the end of theirs are still accounted as held.
    pub fn epoch(&self) -> u64 {
        6 * self.settings.sync
    }

    /// Time in microseconds without an answer after which a node considers the store lost.
    pub fn lost_after(&self) -> u64 {
        self.settings.sync * 5 / 2
    }

    /// Longest time in microseconds between two calls for a key with demand: a sync period, and the
    /// delay by the caller's ticks.
    pub fn period(&self) -> u64 {
        self.settings.sync * 9 / 8
    }

    /// Most units that a node may hold: a sync period at the whole rate or the cap of the burst,
    /// and at least one packet.
    pub fn most(&self) -> u64 {
        let (rate, burst) = self.central;
        let Settings { sync, largest, lease_cap, .. } = self.settings;
        let cap = mul_div(burst, lease_cap, 1000);
        rate.units_in(sync).max(cap).max(largest).min(burst)
    }

    /// Units that a node holds of an always-leased limit even without demand: as many as its share
    /// of the burst, so that the first packets find them.
    pub fn standing(&self) -> u64 {
        match self.cold {
            Some((_, burst)) if self.settings.always => burst.min(self.most()),
            _ => 0,
        }
    }

    /// Units by which a window may exceed `burst + rate * window` if all nodes have contact and
    /// calls take at most `trip` microseconds: docs/cluster.md, "The bound".
    pub fn excess(&self, trip: u64) -> u64 {
        let Some((rate, burst)) = self.cold else { return 0 };
        if self.settings.strict || self.settings.always {
            return 0;
        }
        self.settings.nodes * (burst + rate.units_in(self.period() + 2 * trip))
    }
}
