//! Several captures as one, by the times of their packets. Only those are open that have packets
//! of the present time, so a directory may have more files than a process may open.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;

use limiter_replay::explain::{Arrivals, CaptureError, Captured, LeftOut, Own};
use limiter_text::plain::clean;

use super::{Listed, Read, left_out};
use crate::failure::Failure;

/// A capture that is being read, with its next packet.
struct Open {
    capture: Arrivals,
    name: String,
    next: Captured,
}

/// A capture that was looked at.
enum Waiting {
    /// A file, to be opened again, with the own addresses that its packets reported.
    File(PathBuf, Own),
    /// A pipe, which cannot be opened again.
    Pipe(Box<Open>),
}

pub(super) struct Merged {
    /// The captures that were not begun yet, by the time of their first packet, the last one first.
    waiting: Vec<(u64, Waiting)>,
    open: Vec<Option<Open>>,
    /// Time of the next packet of each open one, the earliest on top.
    times: BinaryHeap<Reverse<(u64, usize)>>,
    files: u64,
    ended: u64,
    /// Packets left out of those that ended.
    left_out: LeftOut,
}

impl Merged {
    /// Looks at the first packet of each capture.
    ///
    /// # Errors
    ///
    /// When one cannot be read at all. A file of a directory that is no capture is left out.
    pub(super) fn begin(files: Vec<Listed>, own: &Own, read: &mut Read) -> Result<Self, Failure> {
        let mut waiting = Vec::with_capacity(files.len());
        let mut left_out = LeftOut::default();
        for file in files {
            let mut capture = match Arrivals::open(&file.path, own, false) {
                Ok(capture) => capture,
                Err(error @ (CaptureError::NoCapture { .. } | CaptureError::Empty { .. }))
                    if file.of_directory =>
                {
                    read.notes.push(format!("left out: {}", clean(&error.to_string())));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let name = clean(&file.path.display().to_string());
            match capture.next_packet() {
                Ok(None) => leave_out(&capture, &name, read, &mut left_out),
                // A file has an end that is known.
                Ok(Some(next)) if capture.percent().is_some() => {
                    let of = capture.left_out();
                    left_out.recognised |= of.recognised;
                    left_out.either = left_out.either.or(of.either);
                    let own = Own::Named(capture.own().to_vec());
                    waiting.push((next.nanos, Waiting::File(file.path, own)));
                }
                Ok(Some(next)) => {
                    let nanos = next.nanos;
                    waiting.push((nanos, Waiting::Pipe(Box::new(Open { capture, name, next }))));
                }
                Err(error) => read.stop(&error),
            }
        }
        let files = u64::try_from(waiting.len()).unwrap_or(u64::MAX);
        // Of two that begin at once, the one that was named first is read first.
        waiting.reverse();
        waiting.sort_by_key(|(nanos, _)| Reverse(*nanos));
        Ok(Self { waiting, open: Vec::new(), times: BinaryHeap::new(), files, ended: 0, left_out })
    }

    /// The next packet of all captures; `None` after the last. Errors end their capture, and are
    /// noted.
    pub(super) fn next(&mut self, read: &mut Read) -> Option<Captured> {
        loop {
            let earliest = self.times.peek().map(|Reverse((nanos, _))| *nanos);
            let begins = |nanos: u64| earliest.is_none_or(|earliest| nanos <= earliest);
            if let Some((_, waiting)) = self.waiting.pop_if(|(nanos, _)| begins(*nanos)) {
                self.start(waiting, read);
                continue;
            }
            let Reverse((_, place)) = self.times.pop()?;
            let open = self.open.get_mut(place)?.as_mut()?;
            let (packet, ended) = match open.capture.next_packet() {
                Ok(Some(next)) => {
                    self.times.push(Reverse((next.nanos, place)));
                    return Some(std::mem::replace(&mut open.next, next));
                }
                Ok(None) => (std::mem::take(&mut open.next), None),
                Err(error) => (std::mem::take(&mut open.next), Some(error)),
            };
            if let Some(error) = ended {
                read.stop(&error);
            }
            self.close(place, read);
            return Some(packet);
        }
    }

    /// Opens a capture whose time has come.
    fn start(&mut self, waiting: Waiting, read: &mut Read) {
        let open = match waiting {
            Waiting::Pipe(open) => *open,
            Waiting::File(path, own) => {
                let name = clean(&path.display().to_string());
                let opened = Arrivals::open(&path, &own, false).and_then(|mut capture| {
                    let next = capture.next_packet()?;
                    Ok(next.map(|next| Open { capture, name, next }))
                });
                match opened {
                    Ok(Some(open)) => open,
                    // Somebody has emptied it since.
                    Ok(None) => return,
                    Err(error) => return read.stop(&error),
                }
            }
        };
        let place = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        self.times.push(Reverse((open.next.nanos, place)));
        match self.open.get_mut(place) {
            Some(free) => *free = Some(open),
            None => self.open.push(Some(open)),
        }
    }

    fn close(&mut self, place: usize, read: &mut Read) {
        if let Some(open) = self.open.get_mut(place).and_then(Option::take) {
            leave_out(&open.capture, &open.name, read, &mut self.left_out);
            self.ended += 1;
        }
    }

    /// Hundredths that were read, with all files taken as equally large; `None` with a pipe.
    pub(super) fn percent(&self) -> Option<u64> {
        let mut sum = self.ended.saturating_mul(100);
        for open in self.open.iter().flatten() {
            sum = sum.saturating_add(open.capture.percent()?);
        }
        sum.checked_div(self.files)
    }

    /// Ends early: notes what was left out of the open captures, and returns what was left out of
    /// all.
    pub(super) fn end(mut self, read: &mut Read) -> LeftOut {
        for place in 0..self.open.len() {
            self.close(place, read);
        }
        self.left_out
    }
}

/// Notes the packets of a capture that were left out.
fn leave_out(capture: &Arrivals, name: &str, read: &mut Read, to: &mut LeftOut) {
    for (link, kind, packets) in capture.other_links() {
        read.notes.push(format!(
            "{name}: {packets} packets are of link type {link} ({kind}), and were left out"
        ));
    }
    left_out::add(to, capture.left_out());
}
