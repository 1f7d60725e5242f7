//! Packet blocks of pcapng, the predecessors of enhanced packet blocks, which some tools still
//! write.

use pcap_parser::PcapError;
use pcap_parser::pcapng::{UnknownBlock, parse_option_be, parse_option_le};

use super::capture::{FLAGS, Framed, lowest};

/// The type of a packet block.
const PACKET: u32 = 2;

/// Bytes before the frame: the interface, drops, the time in two halves, the captured length, and
/// the packet's length.
const HEADER: usize = 20;

/// True if a block that the reader does not know is a packet block, in either byte order.
pub(super) const fn is_packet(block: &UnknownBlock<'_>) -> bool {
    block.block_type == PACKET || is_big_endian(block)
}

/// The reader takes types as little-endian in every file.
const fn is_big_endian(block: &UnknownBlock<'_>) -> bool {
    block.block_type == PACKET.swap_bytes()
}

/// Reads the packet of a block; `None` if the block is too short.
pub(super) fn packet<'a>(block: &UnknownBlock<'a>) -> Option<Framed<'a>> {
    let big_endian = is_big_endian(block);
    let (header, data) = block.data.split_at_checked(HEADER)?;
    let word = |at: usize| {
        let bytes = *header.get(at..)?.first_chunk::<4>()?;
        Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let interface = *header.first_chunk::<2>()?;
    let interface =
        if big_endian { u16::from_be_bytes(interface) } else { u16::from_le_bytes(interface) };
    let (captured, length) = (word(12)?, word(16)?);
    let bytes = usize::try_from(captured).ok()?;
    let frame = data.get(..bytes)?;
    let options = data.get(bytes.next_multiple_of(4)..).unwrap_or_default();
    Some(Framed {
        interface: interface.into(),
        time: u64::from(word(4)?) << 32 | u64::from(word(8)?),
        frame,
        length: length.max(captured),
        flags: flags(options, big_endian),
        id: None,
    })
}

/// The lowest byte of the flags, if present.
fn flags(mut options: &[u8], big_endian: bool) -> Option<u8> {
    let parse = if big_endian { parse_option_be } else { parse_option_le };
    while let Ok::<_, pcap_parser::nom::Err<PcapError<&[u8]>>>((rest, option)) = parse(options) {
        if option.code.0 == FLAGS {
            return lowest(option.value(), big_endian);
        }
        options = rest;
    }
    None
}
