//! The check of an input by each fuzz target: [`Target::check`] panics when a promise is broken.
//!
//! libFuzzer calls it from `fuzz/`, coverage-guided and for as long as one likes. The tests of this
//! crate call it with every input of the committed corpus, and with a bounded number of random
//! changes of them. The same frames go through the program in the kernel in
//! `tests/tests/fuzz_corpus.rs`.

#![expect(
    clippy::panic,
    clippy::expect_used,
    reason = "a broken promise ends the run: that is how libFuzzer and tests learn of it"
)]

pub mod corpus;
pub mod decision;
pub mod import;
mod input;
pub mod mutate;
pub mod packet;
pub mod rules;
pub mod seeds;

/// A fuzz target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The input is a frame: the parser.
    Packet,
    /// The input is a rule file: from text to plan.
    Rules,
    /// The input is a story of rules, frames and time: the decision.
    Decision,
    /// The input is a text of another program: the importer.
    Import,
}

impl Target {
    /// All targets.
    pub const ALL: [Self; 4] = [Self::Packet, Self::Rules, Self::Decision, Self::Import];

    /// Name of the target, and of its corpus.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Rules => "rules",
            Self::Decision => "decision",
            Self::Import => "import",
        }
    }

    /// Runs it on an input.
    ///
    /// # Panics
    ///
    /// When a promise is broken.
    pub fn check(self, input: &[u8]) {
        match self {
            Self::Packet => packet::check(input),
            Self::Rules => rules::check(input),
            Self::Decision => decision::check(input),
            Self::Import => import::check(input),
        }
    }
}
