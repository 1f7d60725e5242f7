//! The client at the other end of a connection.

use std::sync::Arc;

use tokio::sync::Notify;

use super::follow::Following;
use super::line::Line;
use super::turns::{Reader, Turn, Turns};

/// A client, the user whom the daemon belongs to, and the state of the connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(super) user: u32,
    pub(super) owner: u32,
    /// True if the answer is one without an end.
    pub(super) following: Following,
    /// Notified when the connection has to end for the sake of another one.
    pub(super) leave: Arc<Notify>,
    line: Option<Line>,
    turns: Arc<Turns>,
}

impl Peer {
    /// A client; `line` if it can be seen whether it is still there.
    pub(super) fn new(user: u32, owner: u32, line: Option<Line>, turns: &Arc<Turns>) -> Self {
        let turns = Arc::clone(turns);
        Self { user, owner, following: Following::default(), leave: Arc::default(), line, turns }
    }

    /// A client over TCP, which has no user and may change nothing.
    pub(super) fn remote(turns: &Arc<Turns>) -> Self {
        Self::new(u32::MAX, 0, None, turns)
    }

    /// The client's user id.
    pub const fn user(&self) -> u32 {
        self.user
    }

    /// True if the client is root or the daemon's own user.
    pub const fn may_change(&self) -> bool {
        self.user == 0 || self.user == self.owner
    }

    /// True if nobody is there any more.
    pub(super) fn is_gone(&self) -> bool {
        self.line.as_ref().is_some_and(Line::is_closed)
    }

    /// Waits until its turn to read has come.
    pub(super) async fn turn(&self) -> Turn {
        let (who, first, leave) = (self.user, self.may_change(), Arc::clone(&self.leave));
        self.turns.take(&Reader { who, first, leave }).await
    }
}
