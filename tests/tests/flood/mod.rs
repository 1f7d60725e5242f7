//! Floods of sources that were never seen before, over full tables: promise P8. The clock is the
//! test's, so that seconds of a flood pass in as long as the program takes.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

mod known;
mod mixed;
mod newcomers;
mod quotas;
mod scene;
