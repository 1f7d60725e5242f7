//! The offered loads: the same for every algorithm, against a limit of 50 packets a second.

/// How long a plot is, in milliseconds.
pub(crate) const LENGTH: u64 = 4_000;

pub(crate) struct Load {
    pub(crate) title: &'static str,
    /// Times at which the packets come, in microseconds from the start.
    pub(crate) arrivals: Vec<u64>,
}

/// `count` packets evenly from `start` up to before `end`, milliseconds.
fn even(start: u64, end: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |index| start * 1000 + index * (end - start) * 1000 / count)
}

pub(crate) fn all() -> Vec<Load> {
    // The path holds back what comes between 1.5 s and 2.5 s, and then delivers it at once.
    let stalled = even(0, LENGTH, 180).map(|at| match at {
        1_500_000..2_500_000 => 2_500_000,
        _ => at,
    });
    vec![
        Load { title: "steady: 75/s", arrivals: even(0, LENGTH, 300).collect() },
        Load {
            title: "burst: 150 at 0.5 s, then 25/s",
            arrivals: even(500, 600, 150).chain(even(600, LENGTH, 85)).collect(),
        },
        Load {
            title: "border: 60 before and 60 after 2 s",
            arrivals: even(1_950, 2_000, 60).chain(even(2_000, 2_050, 60)).collect(),
        },
        Load {
            title: "idle, then burst: 25/s, nothing, 150 at 3 s",
            arrivals: even(0, 800, 20).chain(even(3_000, 3_200, 150)).collect(),
        },
        Load { title: "stall: 45/s, held back 1.5 to 2.5 s", arrivals: stalled.collect() },
    ]
}
