//! The packets of a capture that came in, each once.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::Path;

use super::own::{self, Ends, Look, Opinion};
use super::{Capture, CaptureError, Captured, Own};

/// Packets of a file that are looked at to tell which the host sent, before any is given on.
const LOOK: u64 = 1 << 20;

/// Packets of a pipe, and bytes of them, that are held back for that.
const HELD: usize = 1 << 14;
const HELD_BYTES: usize = 1 << 24;

/// Packets that were left out, and why.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Packets that went out, as the capture says.
    pub outgoing: u64,
    /// Packets that stand in the capture before.
    pub again: u64,
    /// Packets from an own address, by the address.
    pub own: BTreeMap<IpAddr, u64>,
    /// True if the own addresses were recognised, and not named.
    pub recognised: bool,
    /// Two ends of the packets, if both ways are in the capture and it is not clear which is the
    /// host's: nothing was left out then.
    pub either: Option<(IpAddr, IpAddr)>,
    /// Own addresses that were recognised when their packets had been given on.
    pub too_late: Vec<IpAddr>,
}

impl LeftOut {
    /// Packets that the host sent and that were left out; none where packets of it were given on
    /// because it was not known in time which they are.
    pub fn own_packets(&self) -> Option<u64> {
        let known = self.too_late.is_empty() && self.either.is_none();
        known.then(|| self.own.values().sum())
    }
}

/// The packets of a capture that came in.
#[derive(Debug)]
pub struct Arrivals {
    capture: Capture,
    own: Vec<IpAddr>,
    /// Packets read ahead, to be given on.
    held: VecDeque<Captured>,
    stopped: Option<CaptureError>,
    /// Ends of the packets so far, where they cannot be looked at ahead.
    look: Option<Look>,
    left_out: LeftOut,
}

impl Arrivals {
    /// Opens a file, or standard input for `-`, and looks at its packets to tell which the host
    /// sent. A file is read twice for that. Of a pipe the first packets are held back, unless
    /// `at_once`: then it is known in the end.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is no capture.
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

    /// Hundredths of the file that were read, 0 to 100; none for a pipe.
    pub fn percent(&self) -> Option<u64> {
        self.capture.percent()
    }

    /// Packets so far of link types that are not known, as [`Capture::left_out`].
    pub fn other_links(&self) -> impl Iterator<Item = (i32, &'static str, u64)> {
        self.capture.left_out()
    }

    /// Packets so far that were left out for other reasons.
    pub fn left_out(&self) -> LeftOut {
        let mut left_out = self.left_out.clone();
        match self.look.as_ref().map(Look::opinion) {
            Some(Opinion::Own(own)) => left_out.too_late = own,
            Some(Opinion::Either(one, other)) => left_out.either = Some((one, other)),
            Some(Opinion::None) | None => {}
        }
        left_out
    }

    /// The next packet that came in, `None` after the last.
    ///
    /// # Errors
    ///
    /// As [`Capture::next_packet`].
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
            // What the capture says is better than what its addresses look like.
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

/// Looks at a packet that neither says which way it went nor was seen before.
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
