//! How frames begin, and how they leave.

use limiter_common::verdict::Verdict;

/// Header at the beginning of an interface's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// An IP header: tun and `WireGuard` interfaces.
    Layer3,
}

impl Framing {
    /// Both framings: with and without Ethernet headers.
    pub const ALL: [Self; 2] = [Self::Ethernet, Self::Layer3];

    /// The name of the program in the object and in the kernel.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Ethernet => "limiter",
            Self::Layer3 => "limiter_l3",
        }
    }
}

/// How a frame leaves the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the network stack.
    Pass,
    /// Nowhere: the frame is dropped.
    Drop,
    /// Back to the sender, with an answer in it.
    Back,
    /// To another interface or CPU.
    Redirect,
}

impl Way {
    /// The verdict on the frame that came in. An answer in its place means that it was dropped.
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Pass | Self::Redirect => Verdict::Pass,
            Self::Drop | Self::Back => Verdict::Drop,
        }
    }
}
