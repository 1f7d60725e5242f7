//! How a frame left the model.

use limiter_common::time::Ticks;

use super::trail::Trail;
use super::way::Way;

/// State in which the last frame left.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) trail: Trail,
    pub(super) way: Option<Way>,
    pub(super) frame: Vec<u8>,
    /// The earliest time at which it may be sent, if it passes and waits.
    pub(super) departure: Option<Ticks>,
}
