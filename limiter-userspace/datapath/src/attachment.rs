//! How an interface is under limits: as it was asked for, and as it is now.

use limiter_common::header::Direction;

use super::Hook;

/// Mode in which a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Run by the driver, before the kernel makes a socket buffer.
    Native,
    /// Run by the stack, on a socket buffer.
    Generic,
    /// Run at tc, in a direction.
    Tc(Direction),
}

impl Mode {
    /// The hook of the interface.
    pub const fn hook(self) -> Hook {
        match self {
            Self::Native | Self::Generic => Hook::Xdp,
            Self::Tc(direction) => Hook::Tc(direction),
        }
    }
}

/// Modes of attachment that the user allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeChoice {
    /// Native or nothing.
    Native,
    /// Generic only.
    Generic,
    /// Native, else generic.
    Auto,
}

/// State of the link of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The program is on the interface.
    Attached,
    /// The program is on it, and it is in another network namespace.
    Elsewhere,
    /// The interface is not here, and whether the program is on it elsewhere cannot be seen.
    Unseen,
    /// The interface is here, and the program is not on it.
    Detached,
    /// There is no interface.
    Gone,
}

impl LinkState {
    /// True if the program is known to be on the interface, in this network namespace or another.
    pub const fn is_attached(self) -> bool {
        matches!(self, Self::Attached | Self::Elsewhere)
    }
}

/// An interface under limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the interface now; the last one, if it is not here.
    pub interface: String,
    /// Name that the interface was asked for by.
    pub asked: String,
    /// Index of the interface; 0 while there is none.
    pub ifindex: u32,
    /// Native or generic.
    pub mode: Mode,
    /// Kernel's id of the program.
    pub program_id: u32,
    /// Kernel's id of the link.
    pub link_id: u32,
    /// True if the link was found pinned and kept, with its program replaced.
    pub adopted: bool,
    /// State of the link now.
    pub state: LinkState,
}

/// A hook of an interface that is to be limited there, and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name of the interface.
    pub interface: String,
    /// The mode that was tried.
    pub mode: Mode,
    /// The reason, in words.
    pub error: String,
}

/// Change of an interface since the last look.
#[derive(Debug)]
pub enum LinkChange {
    /// No interface has this name any more.
    Gone(String),
    /// An interface of this name is there again, and under limits.
    Back(String),
    /// The interface has another name, and is under limits as before.
    Renamed {
        /// The name before.
        was: String,
        /// The name now.
        name: String,
    },
    /// The interface is in another network namespace, and under limits there.
    Elsewhere(String),
    /// The interface is not here, and more cannot be seen.
    Unseen(String),
    /// An interface is there without the program: somebody removed the pin of its link. That is a
    /// bypass, so it is not attached again.
    Detached(String),
    /// An interface whose name matches a pattern is there, and under limits.
    Appeared(String),
    /// More interfaces match a pattern than one look attaches to: look again soon.
    Unfinished,
    /// An interface that was limited by a pattern is no longer here by a name that matches. It is
    /// not under limits any more, wherever it is.
    Left(String),
    /// An interface is there that is to be limited, and cannot be. It is tried again, and reported
    /// again if the reason is another one.
    Refused(Refused),
}
