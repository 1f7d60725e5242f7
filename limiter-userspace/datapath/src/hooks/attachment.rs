//! How an interface is limited: what was asked for, and its state now.

use std::collections::{BTreeSet, HashSet};
use std::mem::{Discriminant, discriminant};

use limiter_common::header::Direction;

use crate::Hook;

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
    /// Current name of the interface; the last known one if it is not here.
    pub interface: String,
    /// Name that the interface was asked for by.
    pub asked: String,
    /// Index of the interface; 0 if it is gone.
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

/// The names of limited interfaces, each once, however many of their hooks are limited.
pub fn interfaces_of<'a>(attachments: impl IntoIterator<Item = &'a Attachment>) -> Vec<&'a str> {
    let mut known = BTreeSet::new();
    let names = attachments.into_iter().map(|at| at.interface.as_str());
    names.filter(|name| known.insert(*name)).collect()
}

/// A hook that should be limited but is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name of the interface.
    pub interface: String,
    /// The mode that was tried.
    pub mode: Mode,
    /// The reason, in words.
    pub error: String,
}

/// Change of an interface since the last look, reported once for all of its hooks unless it names
/// one.
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
    /// The interface is not here, and its state elsewhere cannot be seen.
    Unseen(String),
    /// An interface is there without the program at a hook: somebody removed the pin of its link.
    /// That is a bypass, so it is not attached again.
    Detached {
        /// Name of the interface.
        interface: String,
        /// The hook.
        hook: Hook,
    },
    /// An interface whose name matches a pattern is there, and under limits.
    Appeared(String),
    /// More interfaces match a pattern than one look attaches to: look again soon.
    Unfinished,
    /// An interface that was limited by a pattern is no longer here by a name that matches. It is
    /// not under limits any more, wherever it is.
    Left(String),
    /// An interface that should be limited is there but cannot be. limiter tries again, and reports
    /// it again if the reason changes.
    Refused(Refused),
}

impl LinkChange {
    /// The interface, if the change affects all of its hooks.
    fn interface(&self) -> Option<&str> {
        match self {
            Self::Gone(name)
            | Self::Back(name)
            | Self::Renamed { name, .. }
            | Self::Elsewhere(name)
            | Self::Unseen(name)
            | Self::Appeared(name)
            | Self::Left(name) => Some(name),
            Self::Detached { .. } | Self::Unfinished | Self::Refused(_) => None,
        }
    }
}

/// Removes duplicates: a change of an interface is seen at each of its hooks.
pub(crate) fn once(changes: Vec<LinkChange>) -> Vec<LinkChange> {
    let mut known: HashSet<(Discriminant<LinkChange>, String)> = HashSet::new();
    let is_new = |change: &LinkChange| match change.interface() {
        Some(name) => known.insert((discriminant(change), name.to_owned())),
        None => true,
    };
    changes.into_iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_an_interface_is_said_once() {
        let back = |name: &str| LinkChange::Back(name.to_owned());
        let detached =
            |hook| LinkChange::Detached { interface: "eth0".to_owned(), hook: Hook::Tc(hook) };
        let changes = vec![
            LinkChange::Gone("eth0".to_owned()),
            back("eth0"),
            back("eth1"),
            LinkChange::Gone("eth0".to_owned()),
            back("eth0"),
            detached(Direction::In),
            detached(Direction::Out),
        ];
        let left: Vec<String> = once(changes).iter().map(|change| format!("{change:?}")).collect();
        assert_eq!(
            left,
            [
                "Gone(\"eth0\")",
                "Back(\"eth0\")",
                "Back(\"eth1\")",
                "Detached { interface: \"eth0\", hook: Tc(In) }",
                "Detached { interface: \"eth0\", hook: Tc(Out) }",
            ]
        );
    }
}
