//! Documents, a file for each subject: what is asked and answered, and how a table shows it.

#[cfg(feature = "clap")]
pub mod arguments;
pub mod bans;
pub mod bypass;
pub mod capture;
pub mod check;
pub mod client;
pub mod cluster;
pub mod events;
pub mod explain;
pub mod limits;
pub mod lists;
pub mod moment;
pub mod refused;
pub mod render;
pub mod requests;
pub mod rules;
pub mod sources;
pub mod stats;
pub mod status;
pub mod utilization;
pub mod words;

use limiter_common::wire::Tally;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Packets and bytes (frames from the Ethernet header, without the checksum).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Frames.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

impl From<Tally> for Counts {
    fn from(Tally { packets, bytes }: Tally) -> Self {
        Self { packets, bytes }
    }
}

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Error)]
pub struct ErrorBody {
    /// Text of the error: the mistake, its place, and the remedy.
    pub error: String,
}
