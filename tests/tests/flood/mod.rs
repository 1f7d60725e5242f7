//! Floods of sources that were never seen before, over full tables: promise P8. The clock is the
//! test's, so that seconds of a flood pass in as long as the program takes.
//!
//! The XDP program runs in the kernel on frames of the test, each from a new source or from one of
//! some that return. A flood lasts 20 seconds, longer than an entry is kept, at 200,000 packets a
//! second, or 400,000 with 1,048,576 entries; on one CPU and on two.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

mod known;
mod mixed;
mod newcomers;
mod quotas;
mod scene;
