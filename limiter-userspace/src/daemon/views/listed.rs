//! `GET /v1/lists`, told in parts. Nothing is copied for it: an entry that stays on a list all the while is told once,
//! and one that comes, goes or changes meanwhile as it is when its place is reached.

use limiter_common::time::Ticks;

use super::Result;
use crate::control::parts::Parts;
use crate::control::server::Step;
use crate::daemon::lists::Book;
use crate::rules::Selector;

/// Entries that are looked at before others have their turn, when most of them have expired.
const SLICE: usize = 4096;

/// How far it has come.
#[derive(Debug, Default)]
pub(in crate::daemon) struct ListsText {
    parts: Parts,
    begun: bool,
    ended: bool,
    last: Option<Selector>,
}

impl ListsText {
    /// Goes on with it.
    pub(in crate::daemon) fn step(&mut self, book: &Book, now: Ticks) -> Result<Step> {
        if self.ended {
            return Ok(Step::Done);
        }
        if !self.begun {
            self.parts.open_array("entries")?;
            self.begun = true;
        }
        let mut looked = 0;
        let last = self.last;
        for (selector, told) in book.after(last.as_ref(), now) {
            if let Some(entry) = told {
                self.parts.item(&entry)?;
            }
            self.last = Some(selector);
            looked += 1;
            if self.parts.is_part() {
                return Ok(Step::Part(self.parts.take()));
            }
            if looked == SLICE {
                return Ok(Step::Again);
            }
        }
        self.parts.close_array();
        self.parts.end();
        self.ended = true;
        Ok(Step::Part(self.parts.take()))
    }
}
