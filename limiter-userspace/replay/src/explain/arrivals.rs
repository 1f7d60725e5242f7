//! The incoming packets of a capture, each once.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::Path;

use super::own::{self, Ends, Look, Opinion};
use super::{Capture, CaptureError, Captured, Own};

/// Packets of a file that are examined to recognise the host's own addresses before any is
/// returned.
const LOOK: u64 = 1 << 20;

/// Packets of a pipe, and their bytes, that are held back for this.
const HELD: usize = 1 << 14;
const HELD_BYTES: usize = 1 << 24;

/// Packets that were left out, by reason.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Packets that the capture marks as outgoing.
    pub outgoing: u64,
    /// Packets that appear in the capture before.
    pub again: u64,
    /// Packets from an own address, by the address.
    pub own: BTreeMap<IpAddr, u64>,
    /// True if the own addresses were recognised rather than named.
    pub recognised: bool,
    /// Two ends of the packets, if the capture has both directions and it is unclear which is the
    /// host's: then nothing was left out.
    pub either: Option<(IpAddr, IpAddr)>,
    /// Own addresses that were recognised only after their packets had been returned.
    pub too_late: Vec<IpAddr>,
}

impl LeftOut {
    /// Left-out packets that the host sent; `None` if some were returned, because it was not known
    /// in time which ones they are.
    pub fn own_packets(&self) -> Option<u64> {
        let known = self.too_late.is_empty() && self.either.is_none();
        known.then(|| self.own.values().sum())
    }
}

/// Reads the incoming packets of a capture.
#[derive(Debug)]
pub struct Arrivals {
    capture: Capture,
    own: Vec<IpAddr>,
    /// Packets read ahead and not returned yet.
    held: VecDeque<Captured>,
    stopped: Option<CaptureError>,
    /// Ends of the packets so far, if packets cannot be examined ahead.
    look: Option<Look>,
    left_out: LeftOut,
}

impl Arrivals {
    /// Opens a file, or standard input for `-`, and examines its packets to recognise the host's
    /// own addresses. A file is read twice for that. The first packets of a pipe are held back,
    /// unless `at_once`: then the result is known only at the end.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not a capture.
    pub fn open(path: &Path, own: &Own, at_once: bool) -> Result<Self, CaptureError> {
        let capture = Capture::open(path)?;
        let (own, recognise) = match own {
            Own::Named(own) => (own.clone(), false),
            Own::Recognised => (Vec::new(), true),
        };
        let (held, stopped, look) = (VecDeque::new(), None, None);
        let mut arrivals = Self { capture, own, held, stopped, look, left_out: LeftOut::default() };
        if recognise {
            arrivals.recognise(path, at_once)?;
        }
        Ok(arrivals)
    }

    fn recognise(&mut self, path: &Path, at_once: bool) -> Result<(), CaptureError> {
        let mut look = Look::default();
        if self.capture.percent().is_some() {
            let mut ahead = Capture::open(path)?;
            // An error is reported when its packet's turn comes.
            while let Ok(Some(packet)) = ahead.next_packet()
                && packet.number <= LOOK
            {
                seen(&mut look, &packet);
            }
        } else if at_once {
            self.look = Some(look);
            return Ok(());
        } else {
            let mut bytes = 0;
            while self.held.len() < HELD && bytes < HELD_BYTES {
                match self.capture.next_packet() {
                    Ok(Some(packet)) => {
                        seen(&mut look, &packet);
                        bytes += packet.frame.len();
                        self.held.push_back(packet);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        self.stopped = Some(error);
                        break;
                    }
                }
            }
        }
        self.left_out.recognised = true;
        match look.opinion() {
            Opinion::None => {}
            Opinion::Own(own) => self.own = own,
            Opinion::Either(one, other) => self.left_out.either = Some((one, other)),
        }
        Ok(())
    }

    /// Own addresses whose packets are left out.
    pub fn own(&self) -> &[IpAddr] {
        &self.own
    }

    /// Percentage of the file that was read; `None` for a pipe.
    pub fn percent(&self) -> Option<u64> {
        self.capture.percent()
    }

    /// Packets so far with unknown link types; see [`Capture::left_out`].
    pub fn other_links(&self) -> impl Iterator<Item = (i32, &'static str, u64)> {
        self.capture.left_out()
    }

    /// Packets left out so far for other reasons.
    pub fn left_out(&self) -> LeftOut {
        let mut left_out = self.left_out.clone();
        match self.look.as_ref().map(Look::opinion) {
            Some(Opinion::Own(own)) => left_out.too_late = own,
            Some(Opinion::Either(one, other)) => left_out.either = Some((one, other)),
            Some(Opinion::None) | None => {}
        }
        left_out
    }

    /// The next incoming packet; `None` after the last.
    ///
    /// # Errors
    ///
    /// See [`Capture::next_packet`].
    pub fn next_packet(&mut self) -> Result<Option<Captured>, CaptureError> {
        loop {
            let packet = match self.held.pop_front() {
                Some(packet) => packet,
                None => match self.stopped.take() {
                    Some(error) => return Err(error),
                    None => match self.capture.next_packet()? {
                        Some(packet) => packet,
                        None => return Ok(None),
                    },
                },
            };
            if packet.again {
                self.left_out.again += 1;
                continue;
            }
            if packet.outbound {
                self.left_out.outgoing += 1;
                continue;
            }
            if let Some(look) = &mut self.look {
                seen(look, &packet);
            }
            // A direction in the capture is more reliable than the addresses.
            if !packet.inbound
                && !self.own.is_empty()
                && let Some(from) = own::sender(&packet)
                && self.own.contains(&from)
            {
                *self.left_out.own.entry(from).or_default() += 1;
                continue;
            }
            return Ok(Some(packet));
        }
    }
}

/// Examines a packet that does not state its direction and was not seen before.
fn seen(look: &mut Look, packet: &Captured) {
    if !packet.again
        && !packet.outbound
        && !packet.inbound
        && let Some(ends) = Ends::of(packet)
    {
        look.add(ends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_the_host_that_were_given_on_are_not_counted_as_none() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.own_packets(), Some(0));
        left_out.own.insert(address, 7);
        assert_eq!(left_out.own_packets(), Some(7));
        left_out.too_late.push(address);
        assert_eq!(left_out.own_packets(), None);
        let either = Some((address, IpAddr::from([192, 0, 2, 2])));
        assert_eq!(LeftOut { either, ..LeftOut::default() }.own_packets(), None);
    }
}
