//! The hooks of an interface: places where the kernel runs limiter's program.

use limiter_common::header::Direction;

/// A hook of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// Frames that come in, as the driver receives them.
    Xdp,
    /// Packets that come in behind XDP and generic receive offload, or that go out.
    Tc(Direction),
}

impl Hook {
    /// The direction of its packets.
    pub const fn direction(self) -> Direction {
        match self {
            Self::Xdp => Direction::In,
            Self::Tc(direction) => direction,
        }
    }
}
