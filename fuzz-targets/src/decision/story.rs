//! Bytes as the steps of a story.

use limiter_common::wire::Listed;

use crate::input::Input;
use crate::mutate;

pub(super) enum Step {
    Frame(Vec<u8>),
    /// Nanoseconds that go by.
    Time(u64),
    /// Another rule set comes into force.
    Rules(u8),
    /// A prefix goes on a list, for so long or for ever.
    List(u8, Listed, Option<u64>),
    /// A prefix comes off its list.
    Unlist(u8),
    Bypass(bool),
}

pub(super) fn step(input: &mut Input<'_>) -> Step {
    match input.byte() {
        0..=151 => Step::Frame(frame(input)),
        152..=175 => {
            let length = usize::from(input.byte());
            Step::Frame(input.bytes(length).to_vec())
        }
        176..=239 => Step::Time(time(input)),
        240..=245 => Step::Rules(input.byte()),
        246..=249 => {
            let list = *input.choice(&[Listed::Allow, Listed::Deny, Listed::Management]);
            let prefix = input.byte();
            let end = if input.byte() & 1 == 0 { None } else { Some(time(input)) };
            Step::List(prefix, list, end)
        }
        250..=253 => Step::Unlist(input.byte()),
        254 => Step::Bypass(true),
        255 => Step::Bypass(false),
    }
}

/// From a nanosecond to weeks.
fn time(input: &mut Input<'_>) -> u64 {
    let exponent = input.byte() % 42;
    u64::from(input.short()) << exponent
}

/// A frame of few sources and ports, so that limits are reached.
fn frame(input: &mut Input<'_>) -> Vec<u8> {
    let (kind, from) = (input.byte(), input.byte());
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if kind & 0x10 != 0 {
        frame.extend([0x81, 0, 0, from >> 4]);
    }
    let port = *input.choice(&[443_u16, 53, 22, 9]);
    let [high, low] = port.to_be_bytes();
    let (protocol, transport): (u8, Vec<u8>) = match kind & 7 {
        0..=2 => {
            let flags = *input.choice(&[2, 0x10, 0x12, 4, 1, 0x18]);
            let mut tcp = vec![4, 210 + from % 4, high, low, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags];
            tcp.extend([0xff, 0xff, 0, 0, 0, 0]);
            (6, tcp)
        }
        3..=5 => (17, vec![4, 210, high, low, 0, 8, 0, 0]),
        6 => (if kind & 8 == 0 { 1 } else { 58 }, vec![8, 0, 0, 0, 0, 1, 0, 1]),
        _ => (47, vec![0, 0, 8, 0]),
    };
    let payload = usize::from(input.byte()) * if kind & 0x20 != 0 { 6 } else { 0 };
    let carried = transport.len() + payload;
    if kind & 8 == 0 {
        let [total_high, total_low] = short(20 + carried);
        frame.extend([8, 0, 0x45, from & 0xfc, total_high, total_low, 0, 1, 0, 0, 64, protocol]);
        frame.extend([0, 0, 192, 0, 2, from & 3, 198, 51, 100, 1]);
    } else {
        let [length_high, length_low] = short(carried);
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length_high, length_low, protocol, 64]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, from & 3, 0, 0, 0, 0, 0, 0, 0, from]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
    frame.extend(transport);
    frame.resize(frame.len() + payload, 0);
    if kind & 0x40 != 0 {
        let seed = u64::from(input.short());
        mutate::frame(&mut frame, &mut fastrand::Rng::with_seed(seed));
    }
    frame
}

fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}
