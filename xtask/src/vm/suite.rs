//! Which tests a guest runs, for how long, and which it does not run and why.

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// What fits into `cargo xtask test`.
    Quick,
    /// Everything.
    Full,
}

/// A test binary for a guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The file in tests/tests.
    pub(super) binary: &'static str,
    /// Whether [`Scope::Quick`] has it.
    pub(super) quick: bool,
    /// Seconds that one test may take, emulated, on a busy machine.
    pub(super) seconds: u32,
}

const fn part(binary: &'static str, quick: bool, seconds: u32) -> Part {
    Part { binary, quick, seconds }
}

/// In the order in which they are run.
pub(super) const PARTS: [Part; 7] = [
    part("verifier", false, 300),
    part("verdict", true, 120),
    part("attach", true, 120),
    part("trial", false, 120),
    part("equivalence", false, 600),
    part("concurrency", false, 600),
    part("concurrency_tables", false, 600),
];

/// Why a guest does not run what is in the other files of tests/tests.
pub(super) const LEFT_OUT: [(&str, &[&str]); 6] = [
    (
        "they send traffic over a cable or against the clock, and an emulated CPU is no measure",
        &[
            "accuracy",
            "actions_end_to_end",
            "clock",
            "end_to_end",
            "events_end_to_end",
            "examples",
            "explain_now",
            "frames",
            "generators",
            "harness",
            "limits_change",
            "live_frames",
            "path",
            "proxy",
            "sandbox",
            "top",
        ],
    ),
    (
        "they do not load the program: the host's run is every kernel's",
        &["captures", "documented", "lessons", "stack"],
    ),
    ("millions of packets are too many for an emulated CPU", &["flood", "fuzz_corpus"]),
    ("a plain user needs the verifier of a newer kernel: docs/verifier.md", &["privilege"]),
    (
        "the daemon around the program, which the kernel's version is nothing to",
        &[
            "bench",
            "beside",
            "cli",
            "faults",
            "followed",
            "hangup",
            "killed",
            "lifecycle",
            "links",
            "moved",
            "systemd",
        ],
    ),
    (
        "more of the program's decisions, of which verdict and equivalence are the measure here",
        &[
            "actions",
            "bans",
            "counts",
            "events",
            "equivalence_tables",
            "layer3",
            "lines",
            "lists",
            "lookups",
            "loss",
            "packet",
            "sources",
            "tables",
        ],
    ),
];

/// What bounds the tests on an emulated machine.
pub(super) const BOUNDS: [(&str, &str); 2] =
    [("LIMITER_STEPS", "100000"), ("LIMITER_SHORTER", "5")];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace;

    /// A new file in tests/tests must be named here, one way or the other.
    #[test]
    fn every_test_binary_is_run_or_left_out() {
        let directory = workspace::root().unwrap().join("tests/tests");
        let mut there: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        there.sort();
        let left_out = LEFT_OUT.iter().flat_map(|(_, names)| names.iter().copied());
        let mut named: Vec<&str> = PARTS.iter().map(|part| part.binary).chain(left_out).collect();
        named.sort_unstable();
        assert_eq!(named, there);
    }
}
