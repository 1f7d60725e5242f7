//! What is to be in the log, once and then from time to time: how often it was, and an example.

use std::time::{Duration, Instant};

/// Time between two lines of the log about one matter.
const BETWEEN_LINES: Duration = Duration::from_mins(1);

/// What is not in the log yet about one matter.
#[derive(Debug, Default)]
pub(crate) struct Unsaid {
    count: u64,
    /// An example, or the reason.
    latest: String,
    said: Option<Instant>,
}

impl Unsaid {
    /// Notes that it was once more.
    pub(crate) fn note(&mut self, latest: String) {
        self.count += 1;
        self.latest = latest;
    }

    /// What is to be in the log now, if anything is: how often it was, and the latest.
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
