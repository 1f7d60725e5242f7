//! What is to be logged, once and then from time to time: how often it happened, and an example.

use std::time::{Duration, Instant};

/// Time between two lines of the log about one matter.
const BETWEEN_LINES: Duration = Duration::from_mins(1);

/// What is not logged yet about one matter.
#[derive(Debug, Default)]
pub(crate) struct Unsaid {
    count: u64,
    /// An example, or the reason.
    latest: String,
    said: Option<Instant>,
}

impl Unsaid {
    /// Records one more occurrence.
    pub(crate) fn note(&mut self, latest: String) {
        self.note_many(1, latest);
    }

    /// Records so many more occurrences.
    pub(crate) fn note_many(&mut self, count: u64, latest: String) {
        self.count += count;
        self.latest = latest;
    }

    /// What is to be logged now, if anything: how often it happened, and the latest example.
    pub(crate) fn due(&mut self) -> Option<(u64, String)> {
        let due = self.said.is_none_or(|said| said.elapsed() >= BETWEEN_LINES);
        if self.count == 0 || !due {
            return None;
        }
        self.said = Some(Instant::now());
        Some((std::mem::take(&mut self.count), std::mem::take(&mut self.latest)))
    }
}

/// The first characters of what somebody sent, in quotes and without control characters.
pub(crate) fn quoted(value: &str) -> String {
    format!("{:?}", value.chars().take(64).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first is said at once, and those of the next minute together.
    #[test]
    fn what_happens_often_is_said_now_and_then() {
        let mut unsaid = Unsaid::default();
        assert_eq!(unsaid.due(), None);
        unsaid.note(quoted("192.0.2.1:4000\u{1b}"));
        assert_eq!(unsaid.due(), Some((1, "\"192.0.2.1:4000\\u{1b}\"".to_owned())));
        for value in ["a", "b"] {
            unsaid.note(quoted(value));
        }
        assert_eq!(unsaid.due(), None);
        unsaid.said = unsaid.said.and_then(|said| said.checked_sub(BETWEEN_LINES));
        assert_eq!(unsaid.due(), Some((2, "\"b\"".to_owned())));
        assert_eq!(quoted(&"x".repeat(1000)).len(), 66);
    }
}
