//! The blocks of pcapng that the daemon sends, and the packets that they report.

use limiter_common::source::Source;
use limiter_daemon::source_of;
use limiter_rules::source_text;
use pcap_parser::Block;
use pcap_parser::pcapng::{EPB_MAGIC, OptionCode, parse_block_le};

use crate::failure::Failure;

/// Blocks of pcapng in little-endian order, as they come in parts.
#[derive(Debug, Default)]
pub(crate) struct Blocks(Vec<u8>);

impl Blocks {
    /// Adds a part, and passes on the blocks that are complete by then.
    pub(crate) fn add(
        &mut self,
        part: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.0.extend_from_slice(part);
        let mut done = 0;
        while let Some(left) = self.0.get(done..)
            && let Some(length) = left.get(4..8).and_then(|length| length.first_chunk::<4>())
        {
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let Some(block) = left.get(..length) else { break };
            if length < 12 {
                return Err(Failure::CutOff);
            }
            each(block)?;
            done += length;
        }
        self.0.drain(..done);
        Ok(())
    }
}

/// A packet that an observation reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    /// The source of the packet.
    pub(crate) source: Source,
    /// Level of the source: it belongs to one in 2^level of all.
    pub(crate) level: u32,
    /// Time in nanoseconds since 1970.
    pub(crate) nanos: u64,
    pub(crate) bytes: u64,
}

/// Reads the packet of a block, with the source and its level as the comment gives them.
pub(crate) fn reported(block: &[u8]) -> Option<Reported> {
    let (_, Block::EnhancedPacket(packet)) = parse_block_le(block).ok()? else { return None };
    let comment = packet.options.iter().find(|option| option.code == OptionCode::Comment)?;
    let comment = comment.as_str().ok()?;
    // The name of a rule may have the same words in it; what the daemon adds comes last.
    let (_, reported) = comment.rsplit_once("; source ")?;
    let (source, level) = reported.split_once(" level ")?;
    Some(Reported {
        source: source_of(source_text::parse_one(source).ok()?),
        level: level.parse().ok()?,
        nanos: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
        bytes: packet.origlen.into(),
    })
}

/// True for a block with a packet.
pub(crate) fn is_packet(block: &[u8]) -> bool {
    block.starts_with(&EPB_MAGIC.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_whole_whatever_the_parts() {
        let block = |length: u32| {
            let mut block = vec![0; length as usize];
            block[4..8].copy_from_slice(&length.to_le_bytes());
            block
        };
        let stream = [block(12), block(40), block(28)].concat();
        for part in 1..stream.len() {
            let (mut blocks, mut lengths) = (Blocks::default(), Vec::new());
            for part in stream.chunks(part) {
                blocks
                    .add(part, |block| {
                        lengths.push(block.len());
                        Ok(())
                    })
                    .unwrap();
            }
            assert_eq!(lengths, [12, 40, 28], "parts of {part}");
        }
        assert!(Blocks::default().add(&block(12)[..4].repeat(2), |_| Ok(())).is_err());
    }
}
