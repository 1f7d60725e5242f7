//! Live readers of events. The daemon waits for no reader: a slow one loses lines, and learns how
//! many.

use std::cmp::Reverse;

use hyper::body::Bytes;
use limiter_api::events::Line;
use tokio::sync::mpsc;

use super::filter::Filter;
use crate::control::gives_way;

/// Most readers at once, because some connections of the control socket are for other requests.
const MOST: usize = 16;

/// Most lines that wait for a reader.
const WAITING: usize = 1024;

#[derive(Debug)]
struct Follower {
    /// The reader's user, and whether that user may also change something.
    user: u32,
    first: bool,
    lines: mpsc::Sender<Bytes>,
    drops: bool,
    filter: Filter,
    lost: u64,
}

#[derive(Debug, Default)]
pub(super) struct Followers(Vec<Follower>);

impl Followers {
    /// Adds a reader; returns `None` if there are too many. No user keeps another out: the oldest
    /// reader of the user with the most gives way.
    pub(super) fn add(
        &mut self,
        drops: bool,
        filter: Filter,
        user: u32,
        first: bool,
    ) -> Option<mpsc::Receiver<Bytes>> {
        self.0.retain(|follower| !follower.lines.is_closed());
        if self.0.len() >= MOST {
            let victim = self.victim(user, first)?;
            let gone = self.0.remove(victim);
            tracing::info!(user = gone.user, "a reader of events gave way to one of user {user}");
        }
        let (lines, reader) = mpsc::channel(WAITING);
        self.0.push(Follower { user, first, lines, drops, filter, lost: 0 });
        Some(reader)
    }

    /// The reader that gives way to a user, if any must.
    fn victim(&self, user: u32, first: bool) -> Option<usize> {
        let held = |user: u32| self.0.iter().filter(|follower| follower.user == user).count();
        let mine = held(user);
        let all = self.0.iter().enumerate().filter(|(_, follower)| {
            let theirs = held(follower.user);
            follower.user != user && gives_way(theirs, follower.first, mine, first)
        });
        // Among equals, the first is the oldest.
        all.min_by_key(|(_, follower)| (follower.first, Reverse(held(follower.user))))
            .map(|(index, _)| index)
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|follower| !follower.lines.is_closed()).count()
    }

    /// Returns true if a reader wants single drops.
    pub(super) fn want_drops(&self) -> bool {
        self.0.iter().any(|follower| follower.drops)
    }

    /// Sends a line to all readers.
    pub(super) fn report(&mut self, line: &Line) {
        if self.0.is_empty() {
            return;
        }
        let Some(bytes) = bytes(line) else { return };
        let is_drop = matches!(line, Line::Drop(_));
        self.0.retain_mut(|follower| {
            (is_drop && !follower.drops)
                || !follower.filter.takes(line)
                || follower.send(bytes.clone())
        });
    }

    /// Ends the lines for all readers.
    pub(super) fn end(&mut self) {
        self.0.clear();
    }
}

impl Follower {
    /// Returns false when the reader has gone.
    fn send(&mut self, line: Bytes) -> bool {
        if self.lost > 0 {
            let Some(lost) = bytes(&Line::Lost { lines: self.lost }) else { return true };
            match self.lines.try_send(lost) {
                Ok(()) => self.lost = 0,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    self.lost += 1;
                    return true;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
            }
        }
        match self.lines.try_send(line) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.lost += 1;
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

fn bytes(line: &Line) -> Option<Bytes> {
    let mut text = serde_json::to_vec(line)
        .inspect_err(|error| tracing::error!(%error, "an event that cannot be written as JSON"))
        .ok()?;
    text.push(b'\n');
    Some(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &mut mpsc::Receiver<Bytes>) -> Vec<String> {
        std::iter::from_fn(|| reader.try_recv().ok())
            .map(|line| String::from_utf8(line.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn a_slow_reader_learns_what_it_missed() {
        let mut followers = Followers::default();
        let mut reader = followers.add(false, Filter::default(), 0, true).unwrap();
        let line = Line::Lost { lines: 0 };
        for _ in 0..WAITING + 5 {
            followers.report(&line);
        }
        assert_eq!(read(&mut reader).len(), WAITING);
        followers.report(&line);
        let expected = ["{\"event\":\"lost\",\"lines\":5}\n", "{\"event\":\"lost\",\"lines\":0}\n"];
        assert_eq!(read(&mut reader), expected);
    }

    #[test]
    fn readers_are_bounded_and_those_that_left_make_room() {
        let mut followers = Followers::default();
        let mut readers: Vec<_> =
            (0..MOST).map(|_| followers.add(true, Filter::default(), 7, false).unwrap()).collect();
        assert!(followers.add(true, Filter::default(), 7, false).is_none());
        drop(readers.pop());
        assert!(followers.add(true, Filter::default(), 7, false).is_some());
    }

    /// The fault would be that all followers of events belong to one user.
    #[test]
    fn nobody_keeps_another_user_from_following() {
        let mut followers = Followers::default();
        let mut readers: Vec<_> = (0..MOST)
            .map(|_| followers.add(true, Filter::default(), 65_534, false).unwrap())
            .collect();
        let _root = followers.add(true, Filter::default(), 0, true).unwrap();
        assert!(readers[0].is_closed(), "the oldest gives way");
        assert!(readers[1..].iter().all(|reader| !reader.is_closed()));
        assert_eq!(followers.count(), MOST);
        // Another user ends up with as many as the first one, and no more.
        let others: Vec<_> =
            (0..MOST).map_while(|_| followers.add(true, Filter::default(), 1000, false)).collect();
        assert_eq!(others.len(), 7);
        assert_eq!(readers.iter().filter(|reader| !reader.is_closed()).count(), MOST - 8);
        // Root takes one more from the user with the most.
        let _second = followers.add(true, Filter::default(), 0, true).unwrap();
        assert_eq!(readers.iter().filter(|reader| !reader.is_closed()).count(), MOST - 9);
        readers.clear();
    }
}
