//! The client at the other end of a connection.

use std::sync::Arc;

use tokio::sync::Notify;

use super::follow::Following;
use super::line::Line;
use super::turns::{Reader, Turn, Turns};

/// A client, the user who owns the daemon, and the state of the connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(super) user: u32,
    pub(super) owner: u32,
    /// True if the answer is endless.
    pub(super) following: Following,
    /// Notified when the connection must give way to another one.
    pub(super) leave: Arc<Notify>,
    line: Option<Line>,
    turns: Arc<Turns>,
}

impl Peer {
    /// Makes a client; with `line`, the daemon can check whether the client is still there.
    pub(super) fn new(user: u32, owner: u32, line: Option<Line>, turns: &Arc<Turns>) -> Self {
        let turns = Arc::clone(turns);
        Self { user, owner, following: Following::default(), leave: Arc::default(), line, turns }
    }

    /// Makes a client over TCP, which has no user and may change nothing.
    pub(super) fn remote(turns: &Arc<Turns>) -> Self {
        Self::new(u32::MAX, 0, None, turns)
    }

    /// The client's user id.
    pub const fn user(&self) -> u32 {
        self.user
    }

    /// Returns true if the client is root or the daemon's own user.
    pub const fn may_change(&self) -> bool {
        self.user == 0 || self.user == self.owner
    }

    pub(super) fn is_gone(&self) -> bool {
        self.line.as_ref().is_some_and(Line::is_closed)
    }

    /// Waits for the client's turn to read.
    pub(super) async fn turn(&self) -> Turn {
        let (who, first, leave) = (self.user, self.may_change(), Arc::clone(&self.leave));
        self.turns.take(&Reader { who, first, leave }).await
    }
}
