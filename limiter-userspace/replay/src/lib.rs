//! Replays captures and synthetic loads: what rules would do with the traffic, and which limit it
//! needs. Decides like the XDP program, in the traffic's own time. Needs no privilege, no kernel
//! and no daemon.
//!
//! [`load`] generates packets, [`simulate`] applies several rule sets to them, and [`tune`] finds
//! the limit that spares a share of the sources. The last two take packets one by one and hold no
//! file, so that a live observation can feed them as well. [`access_log`] reads requests, of which
//! [`tune`] finds the limit, too.

pub mod access_log;
pub mod explain;
pub mod load;
pub mod simulate;
pub mod tune;
