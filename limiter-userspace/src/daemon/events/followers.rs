//! Who reads events as they come. Nobody waits for a reader: who is too slow loses lines, and is told
//! how many.

use hyper::body::Bytes;
use tokio::sync::mpsc;

use crate::control::api::events::Line;

/// Readers at once: some of the connections of the control socket are for others.
const MOST: usize = 16;

/// Lines that wait for a reader.
const WAITING: usize = 1024;

#[derive(Debug)]
struct Follower {
    lines: mpsc::Sender<Bytes>,
    drops: bool,
    lost: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Followers(Vec<Follower>);

impl Followers {
    /// One more reader; none if there are too many.
    pub(super) fn add(&mut self, drops: bool) -> Option<mpsc::Receiver<Bytes>> {
        self.0.retain(|follower| !follower.lines.is_closed());
        if self.0.len() >= MOST {
            return None;
        }
        let (lines, reader) = mpsc::channel(WAITING);
        self.0.push(Follower { lines, drops, lost: 0 });
        Some(reader)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|follower| !follower.lines.is_closed()).count()
    }

    /// Whether anybody wants single drops.
    pub(super) fn want_drops(&self) -> bool {
        self.0.iter().any(|follower| follower.drops)
    }

    /// Tells all.
    pub(super) fn tell(&mut self, line: &Line) {
        if self.0.is_empty() {
            return;
        }
        let Some(bytes) = bytes(line) else { return };
        let is_drop = matches!(line, Line::Drop(_));
        self.0.retain_mut(|follower| (is_drop && !follower.drops) || follower.send(bytes.clone()));
    }

    /// No more lines: the readers come to the end.
    pub(super) fn end(&mut self) {
        self.0.clear();
    }
}

impl Follower {
    /// False when it has gone.
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
    fn a_slow_reader_is_told_what_it_missed() {
        let mut followers = Followers::default();
        let mut reader = followers.add(false).unwrap();
        let line = Line::Lost { lines: 0 };
        for _ in 0..WAITING + 5 {
            followers.tell(&line);
        }
        assert_eq!(read(&mut reader).len(), WAITING);
        followers.tell(&line);
        let expected = ["{\"event\":\"lost\",\"lines\":5}\n", "{\"event\":\"lost\",\"lines\":0}\n"];
        assert_eq!(read(&mut reader), expected);
    }

    #[test]
    fn readers_are_bounded_and_those_that_left_make_room() {
        let mut followers = Followers::default();
        let mut readers: Vec<_> = (0..MOST).map(|_| followers.add(true).unwrap()).collect();
        assert!(followers.add(true).is_none());
        drop(readers.pop());
        assert!(followers.add(true).is_some());
    }
}
