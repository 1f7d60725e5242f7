//! The hooks of an interface: places where the kernel runs limiter's program.

use aya::programs::tc::TcAttachType;
use limiter_common::header::Direction;
use limiter_model::Framing;

/// A hook of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// Frames that come in, as the driver receives them.
    Xdp,
    /// Incoming packets after XDP and generic receive offload, or outgoing packets.
    Tc(Direction),
}

impl Hook {
    /// The name shown to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "XDP",
            Self::Tc(Direction::In) => "tc in",
            Self::Tc(Direction::Out) => "tc out",
        }
    }

    /// All hooks.
    pub const ALL: [Self; 3] = [Self::Xdp, Self::Tc(Direction::In), Self::Tc(Direction::Out)];

    /// The direction of the hook's packets.
    pub const fn direction(self) -> Direction {
        match self {
            Self::Xdp => Direction::In,
            Self::Tc(direction) => direction,
        }
    }

    /// The tc attach type in aya's terms; `None` for XDP.
    pub(crate) const fn tc(self) -> Option<TcAttachType> {
        match self {
            Self::Xdp => None,
            Self::Tc(Direction::In) => Some(TcAttachType::Ingress),
            Self::Tc(Direction::Out) => Some(TcAttachType::Egress),
        }
    }
}

pub(crate) fn is_limiter(program: &str) -> bool {
    Framing::ALL.iter().any(|framing| framing.program() == program)
}
