//! Properties of every frame.

use limiter_common::header::{Fragment, Reach, Version};
use limiter_decision::packet::{self, Bytes, Facts, Layer3, MAX_TRANSPORT_OFFSET, Packet};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::{facts, generate, oracle};

/// Numbers that change how a frame is read, where they stand in the right place.
const INTERESTING: [u8; 24] = [
    0, 1, 4, 6, 8, 17, 33, 43, 44, 50, 51, 58, 59, 60, 0x40, 0x44, 0x4f, 0x60, 0x81, 132, 135, 136,
    139, 255,
];

/// One thing done to a valid frame.
#[derive(Clone, Debug)]
enum Damage {
    Set(Index, u8),
    SetHeader(Index, u8),
    Cut(Index),
    Insert(Index, u8),
    Remove(Index),
}

impl Damage {
    fn to(&self, frame: &mut Vec<u8>) {
        if frame.is_empty() {
            return;
        }
        match self {
            Self::Set(at, value) => *at.get_mut(frame) = *value,
            // The bytes from the type of the frame to the end of IPv6.
            Self::SetHeader(at, value) => {
                let end = frame.len().min(62);
                if end > 12 {
                    *at.get_mut(&mut frame[12..end]) = *value;
                }
            }
            Self::Cut(at) => frame.truncate(at.index(frame.len())),
            Self::Insert(at, value) => frame.insert(at.index(frame.len()), *value),
            Self::Remove(at) => {
                frame.remove(at.index(frame.len()));
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let value = || prop_oneof![prop::sample::select(INTERESTING.to_vec()), any::<u8>()];
    let at = any::<Index>;
    prop_oneof![
        (at(), value()).prop_map(|(at, value)| Damage::Set(at, value)),
        (at(), value()).prop_map(|(at, value)| Damage::SetHeader(at, value)),
        at().prop_map(Damage::Cut),
        (at(), value()).prop_map(|(at, value)| Damage::Insert(at, value)),
        at().prop_map(Damage::Remove),
    ]
}

fn damaged() -> impl Strategy<Value = Vec<u8>> {
    (generate::frames(), vec(damage(), 1..5)).prop_map(|(mut frame, damages)| {
        for damage in damages {
            damage.to(&mut frame);
        }
        frame
    })
}

/// A frame of which only the first bytes can be read in place, as a driver may hand it over.
struct Split<'a> {
    frame: &'a [u8],
    linear: usize,
}

impl Bytes for Split<'_> {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.frame.read(offset)
    }

    fn in_place<const OFFSET: usize, const N: usize>(&self) -> Option<[u8; N]> {
        self.frame.get(..self.linear)?.get(OFFSET..)?.first_chunk().copied()
    }
}

/// A frame that is read in a few reads says what the walk from header to header says.
fn read_at_once_as_walked(frame: &impl Bytes) -> Result<(), TestCaseError> {
    prop_assert_eq!(packet::parse(frame), packet::walk_to_source(frame));
    let (mut at_once, mut walked) = (Facts::EMPTY, Facts::EMPTY);
    let reported = packet::facts(frame, &mut at_once);
    prop_assert_eq!(reported, packet::walk(frame, &mut walked));
    prop_assert_eq!(at_once, walked);
    Ok(())
}

/// Every frame, whatever its bytes.
fn holds(frame: &[u8]) -> Result<(), TestCaseError> {
    read_at_once_as_walked(&frame)?;
    for linear in [0, 14, 33, 36, 50] {
        read_at_once_as_walked(&Split { frame, linear })?;
    }
    if let Some(packet) = frame.get(14..) {
        read_at_once_as_walked(&Layer3(packet))?;
    }
    let facts = match (packet::parse(&frame), facts(frame)) {
        (Packet::From(source), Ok(facts)) => {
            prop_assert_eq!(source, facts.source());
            facts
        }
        (Packet::Exempt(parse), Err(facts)) => {
            prop_assert_eq!(parse, facts);
            let mut untouched = Facts::EMPTY;
            prop_assert!(packet::facts(&frame, &mut untouched).is_err());
            prop_assert_eq!(untouched, Facts::EMPTY);
            return Ok(());
        }
        (parse, facts) => return Err(TestCaseError::fail(format!("{parse:?}, but {facts:?}"))),
    };
    // Nothing of the last packet is left over.
    let mut again = facts;
    let other = frame_of_everything();
    prop_assert!(packet::facts(&other.as_slice(), &mut again).is_ok());
    prop_assert!(packet::facts(&frame, &mut again).is_ok());
    prop_assert_eq!(again, facts);

    let transport = facts.transport_offset().map(usize::from);
    if let Some(offset) = transport {
        prop_assert!(offset <= frame.len() && offset <= MAX_TRANSPORT_OFFSET);
        prop_assert!(offset >= usize::from(facts.network_offset()) + 20);
        prop_assert!(facts.protocol().is_some());
    } else {
        prop_assert_ne!(facts.reach(), Reach::Transport);
        prop_assert_eq!((facts.ports(), facts.tcp_flags(), facts.icmp()), (None, None, None));
    }
    let is_later = facts.fragment() == Fragment::Later;
    prop_assert!(!is_later || transport.is_none());
    prop_assert!(facts.reach() != Reach::LaterFragment || is_later);
    if facts.reach() == Reach::TooDeep {
        prop_assert_eq!((facts.protocol(), facts.opens_connection()), (None, None));
    }
    let ports = matches!(facts.protocol(), Some(6 | 17 | 33 | 132 | 136));
    let icmp = match facts.version() {
        Version::V4 => facts.protocol() == Some(1),
        Version::V6 => facts.protocol() == Some(58),
    };
    prop_assert!(facts.ports().is_none() || ports);
    prop_assert!(facts.tcp_flags().is_none() || facts.protocol() == Some(6));
    prop_assert!(facts.icmp().is_none() || icmp);
    if facts.reach() == Reach::Transport {
        prop_assert_eq!(facts.ports().is_some(), ports);
        prop_assert_eq!(facts.tcp_flags().is_some(), facts.protocol() == Some(6));
        prop_assert_eq!(facts.icmp().is_some(), icmp);
    }
    prop_assert!(facts.dscp() < 64 && facts.ecn() < 4);
    prop_assert!(facts.vlan().is_none_or(|id| id < 4096));
    Ok(())
}

/// One that sets most fields.
fn frame_of_everything() -> Vec<u8> {
    let mut frame = vec![0xff; 14 + 4 + 20 + 20];
    frame[12..14].copy_from_slice(&[0x81, 0]);
    frame[16..18].copy_from_slice(&[8, 0]);
    frame[18] = 0x45;
    frame[24..26].copy_from_slice(&[0, 0]);
    frame[27] = 6;
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// On valid frames the parser says what etherparse says, of every fact that both know.
    #[test]
    fn etherparse_agrees(frame in generate::frames()) {
        let facts = match facts(&frame) {
            Ok(facts) => facts,
            // A neighbour discovery message by chance.
            Err(reason) => {
                prop_assert_eq!(reason, limiter_common::verdict::Reason::NeighbourDiscovery);
                return Ok(());
            }
        };
        prop_assert_eq!(oracle::parser(&facts), oracle::etherparse(&frame), "{:02x?}", frame);
        holds(&frame)?;
    }

    /// Bytes behind a frame change nothing that was known.
    #[test]
    fn padding_changes_nothing(frame in generate::frames(), padding in vec(any::<u8>(), 1..100)) {
        let mut padded = frame.clone();
        padded.extend(padding);
        prop_assert_eq!(facts(&padded), facts(&frame));
    }

    /// Cut anywhere, a frame says less and nothing else.
    #[test]
    fn a_cut_frame_says_less(frame in generate::frames(), at in any::<Index>()) {
        let cut = &frame[..at.index(frame.len())];
        if let (Ok(whole), Ok(part)) = (facts(&frame), facts(cut)) {
            prop_assert_eq!(part.source_address(), whole.source_address());
            prop_assert_eq!(part.destination_address(), whole.destination_address());
            prop_assert!(part.ports().is_none() || part.ports() == whole.ports());
            prop_assert!(part.tcp_flags().is_none() || part.tcp_flags() == whole.tcp_flags());
            prop_assert!(part.icmp().is_none() || part.icmp() == whole.icmp());
            prop_assert!(part.protocol().is_none() || part.protocol() == whole.protocol());
        }
        holds(cut)?;
    }

    #[test]
    fn damaged_frames(frame in damaged()) {
        holds(&frame)?;
    }

    #[test]
    fn any_bytes(frame in vec(any::<u8>(), 0..200)) {
        holds(&frame)?;
    }

    /// Any bytes under a type that is looked into.
    #[test]
    fn any_bytes_as_ip(
        (ether_type, start) in prop_oneof![Just(([8, 0], 0x40)), Just(([0x86, 0xdd], 0x60))],
        mut frame in vec(prop_oneof![prop::sample::select(INTERESTING.to_vec()), any::<u8>()], 15..3000),
    ) {
        frame[12..14].copy_from_slice(&ether_type);
        frame[14] = start | frame[14] & 0x0f;
        holds(&frame)?;
    }
}
