//! Replays: what rules would do with traffic, and which limit traffic needs: of captures and of
//! made loads, by the decision of the XDP program, in their own time. Needs no privilege, no kernel
//! and no daemon.
//!
//! [`load`] makes packets, [`simulate`] puts them before several rule sets, [`tune`] finds the
//! limit that spares a share of the sources. The last two take what they are given one by one and
//! hold no file, so that a live observation can feed them as well.

pub mod explain;
pub mod load;
pub mod simulate;
pub mod tune;
