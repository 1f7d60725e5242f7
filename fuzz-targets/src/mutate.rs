//! Changes of frames that keep most of their structure: random bytes rarely get past the type.

use fastrand::Rng;

const ETHER_TYPE: usize = 12;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TAGS: [[u8; 2]; 3] = [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]];
const TYPES: [[u8; 2]; 6] = [IPV4, IPV6, [0x08, 0x06], [0x88, 0xcc], [0x88, 0x64], [0x88, 0xe5]];

/// Numbers that change how a frame is read, where a protocol stands.
const PROTOCOLS: [u8; 18] = [0, 1, 4, 6, 17, 33, 41, 43, 44, 47, 50, 51, 58, 59, 60, 132, 135, 136];

/// Extension headers of IPv6 and what is none.
const EXTENSIONS: [u8; 9] = [0, 43, 44, 51, 60, 135, 139, 140, 253];

/// The largest frame that is made.
pub const MAX_LENGTH: usize = 4096;

/// Changes a frame in one to four places.
pub fn frame(frame: &mut Vec<u8>, random: &mut Rng) {
    if frame.len() < ETHER_TYPE + 2 || random.u8(..) < 4 {
        *frame = fresh(random);
    }
    for _ in 0..random.u8(1..5) {
        change(frame, random);
    }
    frame.truncate(MAX_LENGTH);
}

/// A small whole frame.
pub fn fresh(random: &mut Rng) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let payload: Vec<u8> = (0..random.usize(0..40)).map(|_| random.u8(..)).collect();
    let protocol = PROTOCOLS[random.usize(..PROTOCOLS.len())];
    if random.bool() {
        frame.extend(IPV4);
        let [high, low] = length(20 + payload.len());
        frame.extend([0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0]);
        frame.extend([192, 0, 2, random.u8(1..5), 198, 51, 100, 1]);
    } else {
        frame.extend(IPV6);
        let [high, low] = length(payload.len());
        let hops = if random.bool() { 255 } else { 64 };
        frame.extend([0x60, 0, 0, 0, high, low, protocol, hops]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, random.u8(..4), 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
    frame.extend(payload);
    frame
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

/// Offset of the network header, by the tags that there are; the frame may end before it.
fn network(frame: &[u8]) -> usize {
    let mut at = ETHER_TYPE;
    while let Some(kind) = frame.get(at..at + 2)
        && TAGS.iter().any(|tag| tag == kind)
    {
        at += 4;
    }
    at + 2
}

/// Writes bytes where there is room for them.
fn put<const N: usize>(frame: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = frame.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

fn change(frame: &mut Vec<u8>, random: &mut Rng) {
    if frame.len() < ETHER_TYPE + 2 {
        return;
    }
    let start = network(frame);
    let is_v4 = start >= 2 && frame.get(start - 2..start) == Some(&IPV4[..]);
    let pick = |random: &mut Rng, from: &[u8]| from[random.usize(..from.len())];
    match random.u8(..14) {
        0 => {
            let [a, b] = TAGS[random.usize(..TAGS.len())];
            frame.splice(ETHER_TYPE..ETHER_TYPE, [a, b, random.u8(..), random.u8(..)]);
        }
        1 => drop(frame.drain(ETHER_TYPE..frame.len().min(ETHER_TYPE + 4))),
        2 if random.bool() => put(frame, start - 2, TYPES[random.usize(..TYPES.len())]),
        3 if is_v4 => options(frame, start, random),
        3 | 4 => extension(frame, start, random),
        5 if is_v4 => {
            let field = [[0, 0], [0x20, 0], [0, 1], [0x20, 9], [0x40, 0], [0x1f, 0xff]];
            put(frame, start + 6, field[random.usize(..field.len())]);
        }
        5 => put(frame, start + 7, [pick(random, &[255, 64, 1, 0])]),
        6 => {
            let place = if is_v4 { 9 } else { 6 };
            put(frame, start + place, [pick(random, &PROTOCOLS)]);
        }
        // The next header and the length of the first extension.
        7 => put(frame, start + 40, [pick(random, &PROTOCOLS)]),
        8 => put(frame, start + 41, [random.u8(..)]),
        9 => {
            let all = length(frame.len().saturating_sub(start));
            let lengths = [[0, 0], [0, 1], [0, 20], [0xff, 0xff], all];
            let place = if is_v4 { 2 } else { 4 };
            put(frame, start + place, lengths[random.usize(..lengths.len())]);
        }
        10 => frame.truncate(random.usize(..=frame.len())),
        11 => frame.resize(frame.len() + random.usize(..64), random.u8(..)),
        12 if random.bool() => {
            if let Some(byte) = frame.get_mut(start) {
                *byte = random.u8(..16) << 4 | *byte & 0x0f;
            }
        }
        _ => {
            let at = random.usize(..frame.len());
            frame[at] = random.u8(..);
        }
    }
}

/// Sets the header length of IPv4, with options to fill it or without.
fn options(frame: &mut Vec<u8>, start: usize, random: &mut Rng) {
    let words = random.u8(..16);
    let Some(first) = frame.get_mut(start) else {
        return;
    };
    *first = *first & 0xf0 | words;
    let end = start + 20;
    if random.bool() && frame.len() >= end {
        let bytes = usize::from(words).saturating_sub(5) * 4;
        frame.splice(end..end, (0..bytes).map(|_| 1));
    }
}

/// Puts an extension header behind the fixed one of IPv6 (or what would be one).
fn extension(frame: &mut Vec<u8>, start: usize, random: &mut Rng) {
    let end = start + 40;
    if frame.len() < end {
        return;
    }
    let kind = EXTENSIONS[random.usize(..EXTENSIONS.len())];
    let units = if random.u8(..4) == 0 { random.u8(..) } else { random.u8(..3) };
    let bytes = match kind {
        44 => 8,
        51 => (usize::from(units) + 2) * 4,
        _ => (usize::from(units) + 1) * 8,
    };
    let mut header = vec![0; bytes];
    header[0] = frame[start + 6];
    header[1] = units;
    if kind == 44 {
        let offsets = [[0, 0], [0, 1], [0, 8], [0xff, 0xf9]];
        put(&mut header, 2, offsets[random.usize(..offsets.len())]);
    }
    frame[start + 6] = kind;
    frame.splice(end..end, header);
}

/// Changes any input in one to eight places, with pieces of another one.
pub fn bytes(input: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    for _ in 0..random.u8(1..9) {
        let at = random.usize(..=input.len());
        let end = (at + random.usize(..16)).min(input.len());
        match random.u8(..5) {
            0 => drop(input.drain(at..end)),
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.u8(..8);
                }
            }
            2 => input.insert(at, random.u8(..)),
            3 => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            _ => {
                let from = random.usize(..=other.len());
                let to = (from + random.usize(..64)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
}
