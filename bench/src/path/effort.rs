//! How much is measured.

use std::time::Duration;

use limiter_tests::live_frames::Sources;

/// Sources that send in the measurement of costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    pub(super) name: &'static str,
    pub(super) sources: Sources,
}

/// So many sources in every table, and mixes of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    /// Each of them sends one packet first.
    pub(super) sources: u32,
    pub(super) mixes: &'static [Mix],
}

const ONE: Crowd = Crowd { sources: 1, mixes: &[Mix { name: "1 source", sources: Sources::One }] };

const SOME: Crowd = Crowd {
    sources: 10_000,
    mixes: &[Mix { name: "10,000 sources", sources: Sources::Uniform(10_000) }],
};

const MANY: Crowd = Crowd {
    sources: 1_000_000,
    mixes: &[
        Mix { name: "1,000,000 sources", sources: Sources::Uniform(1_000_000) },
        Mix { name: "524,287 sources, few send most", sources: Sources::Zipf(19) },
    ],
};

const UNIFORM: Crowd = Crowd { mixes: MANY.mixes.split_at(1).0, ..MANY };

/// Crowds with a rule by port and source: as many keys as sources.
const KEYED: [Crowd; 3] = [
    Crowd { sources: 1, mixes: &[Mix { name: "1 key", sources: Sources::One }] },
    Crowd {
        sources: 10_000,
        mixes: &[Mix { name: "10,000 keys", sources: Sources::Uniform(10_000) }],
    },
    Crowd {
        sources: 1_000_000,
        mixes: &[Mix { name: "1,000,000 keys", sources: Sources::Uniform(1_000_000) }],
    },
];

/// The crowd with four rules. A source of its own would be over the wide ones.
const FOUR: Crowd = Crowd {
    sources: 10_000,
    mixes: &[Mix { name: "10,000 keys in each of four rules", sources: Sources::Uniform(10_000) }],
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    None,
    /// Packets a second.
    PerSecond(u32),
    /// As fast as the generator can.
    Fastest,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) crowds: &'static [Crowd],
    /// Cases at tc.
    pub(super) at_tc: &'static [Crowd],
    /// Cases with a rule by port and source.
    pub(super) keyed: &'static [Crowd],
    /// The case with four rules at once.
    pub(super) four: Crowd,
    /// Rounds of costs and capacities, and how long each tool has the cable in one.
    pub(super) rounds: usize,
    pub(super) slice: Duration,
    pub(super) floods: &'static [Flood],
    /// Rounds of latencies, and how long each tool has each flood in one.
    pub(super) flood_rounds: usize,
    pub(super) step: Duration,
}

impl Effort {
    pub(super) const FULL: Self = Self {
        crowds: &[ONE, SOME, MANY],
        at_tc: &[ONE, SOME, UNIFORM],
        keyed: &KEYED,
        four: FOUR,
        rounds: 7,
        slice: Duration::from_millis(400),
        floods: &[
            Flood::None,
            Flood::PerSecond(500_000),
            Flood::PerSecond(1_000_000),
            Flood::PerSecond(1_500_000),
            Flood::PerSecond(2_000_000),
            Flood::PerSecond(3_000_000),
            Flood::PerSecond(4_000_000),
            Flood::Fastest,
        ],
        flood_rounds: 3,
        step: Duration::from_secs(1),
    };

    pub(super) const QUICK: Self = Self {
        crowds: &[ONE, SOME],
        at_tc: &[ONE, SOME],
        keyed: KEYED.split_at(2).0,
        four: FOUR,
        rounds: 3,
        slice: Duration::from_millis(200),
        floods: &[
            Flood::None,
            Flood::PerSecond(500_000),
            Flood::PerSecond(2_000_000),
            Flood::Fastest,
        ],
        flood_rounds: 1,
        step: Duration::from_millis(800),
    };
}
