//! Captured packets as pcapng: a section, interfaces as they appear, packets with their verdict as
//! a comment, and at the end the number of packets that were not reported.

use std::borrow::Cow;
use std::fmt::Write as _;

use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{CaptureFilter, CaptureRecord};
use limiter_datapath::{CapturedPacket, Framing};
use limiter_text::plain::clean;
use pcap_parser::pcapng::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, InterfaceStatisticsBlock, OptionCode,
    PcapNGOption, SectionHeaderBlock,
};
use pcap_parser::{Linktype, ToVec};

use super::missed::Missed;

/// Byte-order mark in the header of a section.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Option of a packet with its direction.
const EPB_FLAGS: OptionCode = OptionCode(2);

/// Resolution of times: nanoseconds, 10^-9.
const NANOSECONDS: u8 = 9;

#[derive(Debug)]
pub(super) struct Writer {
    /// Nanoseconds from the program's clock to the wall clock.
    offset: u64,
    snap: u32,
    /// True if comments name the source and its level.
    observes: bool,
    /// Interfaces that have a block, by the block's number.
    interfaces: Vec<(u32, Framing)>,
}

impl Writer {
    /// Makes a writer and the beginning of the section, for a capture that began at `now` of the
    /// program's clock.
    pub(super) fn new(filter: &CaptureFilter, wall_nanos: u64, now: Ticks) -> (Self, Vec<u8>) {
        let writer = Self {
            offset: wall_nanos.wrapping_sub(now.as_nanos()),
            snap: filter.snap,
            observes: filter.level != CaptureFilter::EVERY_SOURCE,
            interfaces: Vec::new(),
        };
        let header = SectionHeaderBlock {
            block_type: 0,
            block_len1: 0,
            bom: BYTE_ORDER,
            major_version: 1,
            minor_version: 0,
            section_len: -1,
            options: vec![text(
                OptionCode::ShbUserAppl,
                concat!("limiter ", env!("CARGO_PKG_VERSION")),
            )],
            block_len2: 0,
        };
        (writer, bytes(header))
    }

    /// Adds a packet. `rule` is the name of its rule, and `name` returns the name of an interface
    /// by index.
    pub(super) fn packet(
        &mut self,
        to: &mut Vec<u8>,
        packet: &CapturedPacket,
        rule: Option<&str>,
        source: Option<&str>,
        name: impl Fn(u32) -> Option<String>,
    ) {
        let CapturedPacket { record, bytes: data } = packet;
        let framing = if record.layer_3 == 0 { Framing::Ethernet } else { Framing::Layer3 };
        let interface = self.interface(to, record.interface, framing, name);
        let time = Ticks::new(record.time).as_nanos().wrapping_add(self.offset);
        let comment = comment(record, rule, source.filter(|_| self.observes));
        to.extend(bytes(EnhancedPacketBlock {
            block_type: 0,
            block_len1: 0,
            if_id: interface,
            ts_high: high(time),
            ts_low: low(time),
            caplen: record.captured,
            origlen: record.length,
            data,
            options: vec![
                option(EPB_FLAGS, flags(record.direction).to_le_bytes().to_vec()),
                text(OptionCode::Comment, &comment),
            ],
            block_len2: 0,
        }));
    }

    /// Adds the end: the numbers of reported and unreported packets. They stand at the first
    /// interface, because the program does not count them by interface.
    pub(super) fn end(
        &mut self,
        to: &mut Vec<u8>,
        (began, ended): (Ticks, Ticks),
        reported: u64,
        missed: Missed,
        (index, name): (u32, Option<&str>),
    ) {
        if self.interfaces.is_empty() {
            self.interface(to, index, Framing::Ethernet, |_| name.map(str::to_owned));
        }
        let at = |time: Ticks| time.as_nanos().wrapping_add(self.offset);
        let number = |code, value: u64| option(code, value.to_le_bytes().to_vec());
        let time = |code, time: u64| {
            let halves = [high(time).to_le_bytes(), low(time).to_le_bytes()];
            option(code, halves.concat())
        };
        let comment = format!(
            "all interfaces: {reported} packets reported; not reported: {} over the budget, {} without room",
            missed.over_budget, missed.lost
        );
        to.extend(bytes(InterfaceStatisticsBlock {
            block_type: 0,
            block_len1: 0,
            if_id: 0,
            ts_high: high(at(ended)),
            ts_low: low(at(ended)),
            options: vec![
                text(OptionCode::Comment, &comment),
                time(OptionCode::IsbStartTime, at(began)),
                time(OptionCode::IsbEndTime, at(ended)),
                number(OptionCode::IsbIfDrop, missed.over_budget),
                number(OptionCode::IsbFilterAccept, reported + missed.over_budget + missed.lost),
                number(OptionCode::IsbOsDrop, missed.lost),
                number(OptionCode::IsbUsrDeliv, reported),
            ],
            block_len2: 0,
        }));
    }

    /// Returns the number of an interface's block, and adds the block if there is none.
    fn interface(
        &mut self,
        to: &mut Vec<u8>,
        index: u32,
        framing: Framing,
        name: impl Fn(u32) -> Option<String>,
    ) -> u32 {
        let known = self.interfaces.iter().position(|known| *known == (index, framing));
        let number = known.unwrap_or_else(|| {
            let name = name(index).unwrap_or_else(|| format!("interface {index}"));
            to.extend(bytes(InterfaceDescriptionBlock {
                block_type: 0,
                block_len1: 0,
                linktype: match framing {
                    Framing::Ethernet => Linktype::ETHERNET,
                    Framing::Layer3 => Linktype::RAW,
                },
                reserved: 0,
                snaplen: self.snap,
                options: vec![
                    text(OptionCode::IfName, &clean(&name)),
                    option(OptionCode::IfTsresol, vec![NANOSECONDS]),
                    option(OptionCode::IfTsoffset, vec![0; 8]),
                ],
                block_len2: 0,
                if_tsresol: NANOSECONDS,
                if_tsoffset: 0,
            }));
            self.interfaces.push((index, framing));
            self.interfaces.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }
}

/// `dropped: over-limit, rule NAME`, and in an observation `; source ADDRESS level N`.
fn comment(record: &CaptureRecord, rule: Option<&str>, source: Option<&str>) -> String {
    let reason = Reason::from_index(u32::from(record.reason));
    let verdict = match reason.verdict() {
        Verdict::Pass => "passed",
        Verdict::Drop => "dropped",
    };
    let mut text = format!("{verdict}: {}", reason.name());
    if let Some(rule) = rule {
        text.push_str(", rule ");
        text.push_str(&clean(rule));
    }
    if let Some(source) = source {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = write!(text, "; source {source} level {}", record.level);
    }
    text
}

/// Direction of a packet as the two lowest bits of `epb_flags`.
const fn flags(direction: u8) -> u32 {
    if direction == Direction::Out as u8 { 0b10 } else { 0b01 }
}

/// Longest text of an option: its length has 16 bits.
const MOST: usize = 4096;

fn text(code: OptionCode, text: &str) -> PcapNGOption<'static> {
    let mut end = text.len().min(MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    option(code, text.as_bytes().get(..end).unwrap_or_default().to_vec())
}

fn option(code: OptionCode, value: Vec<u8>) -> PcapNGOption<'static> {
    PcapNGOption { code, len: u16::try_from(value.len()).unwrap_or(0), value: Cow::Owned(value) }
}

fn bytes(mut block: impl ToVec) -> Vec<u8> {
    // Writing to memory cannot fail.
    block.to_vec().unwrap_or_default()
}

const fn high(number: u64) -> u32 {
    (number >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
const fn low(number: u64) -> u32 {
    number as u32
}
