//! The packet parser in the kernel: the same facts as on the host, for whole frames, damaged ones
//! and any bytes; and for the whole ones the same as etherparse finds.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails where its machinery does"
)]

#[path = "../../limiter-common/decision/tests/packet/oracle.rs"]
mod oracle;

use std::collections::BTreeSet;

use limiter_common::header::{Fragment as Piece, Reach};
use limiter_common::verdict::Reason;
use limiter_datapath::{Framing, Hook, Kernel, Options, SourceTable, TcOrder};
use limiter_decision::packet::{self, Facts};
use limiter_tests::bpffs::Bpffs;
use limiter_tests::cpu;
use limiter_tests::packet::{Extension, Fragment, Frame, TAG_SERVICE, Transport};
use limiter_tests::program::{Program, SHIPPED};
use limiter_tests::root::require_root;
use limiter_tests::test_run::verified_instructions;
use limiter_tests::work_dir::WorkDir;

/// Frames of each of the two runs.
const FRAMES: u32 = 40_000;

/// CPU that the test runs on.
const CPU: usize = 0;

/// The kernel takes no shorter frame for a test run.
const SHORTEST: usize = 14;

/// Numbers that change how a frame is read, where they stand in the right place.
const INTERESTING: [u8; 28] = [
    0, 1, 2, 4, 5, 6, 8, 17, 33, 43, 44, 47, 50, 51, 58, 59, 60, 0x40, 0x44, 0x4f, 0x60, 0x81, 132,
    135, 136, 139, 140, 255,
];

fn host(frame: &[u8]) -> Result<Facts, Reason> {
    let mut facts = Facts::EMPTY;
    packet::facts(&frame, &mut facts)?;
    packet::inner(&frame, &mut facts);
    Ok(facts)
}

/// The test program, and this thread where its facts are.
fn program() -> Program {
    require_root();
    cpu::pin(None, CPU).unwrap();
    Program::load(256, 16).unwrap()
}

struct Random(fastrand::Rng);

impl Random {
    fn transport(&mut self) -> Transport {
        let (source, destination) = (self.0.u16(..), self.0.u16(..));
        match self.0.u8(..6) {
            0 => Transport::Udp { source, destination },
            1 | 2 => Transport::Tcp { source, destination, flags: self.0.u8(..) },
            3 => Transport::Echo { id: 1, sequence: 2 },
            4 => Transport::Icmp { kind: self.0.u8(..), code: self.0.u8(..) },
            _ => Transport::Raw(*self.0.choice(&[132, 33, 136, 47, 50, 59, 253]).unwrap()),
        }
    }

    fn fragment(&mut self) -> Fragment {
        let offset = if self.0.bool() { 0 } else { self.0.u16(1..8192) };
        Fragment { id: self.0.u32(..), offset, more: self.0.bool() }
    }

    fn extension(&mut self) -> Extension {
        let units = self.0.u8(..30);
        match self.0.u8(..3) {
            0 => Extension::Routing(units),
            1 => Extension::Destination(units),
            _ => Extension::Authentication(units / 2 * 2 + 1),
        }
    }

    /// A whole and valid frame.
    fn frame(&mut self) -> Vec<u8> {
        let mut frame = if self.0.bool() {
            let options = 4 * self.0.usize(..=10);
            Frame::ipv4(self.0.u32(..).to_be_bytes(), self.0.u32(..).to_be_bytes())
                .options(&vec![1; options])
        } else {
            let mut frame =
                Frame::ipv6(self.0.u128(..).to_be_bytes(), self.0.u128(..).to_be_bytes());
            if self.0.u8(..4) == 0 {
                frame = frame.extension(Extension::HopByHop(self.0.u8(..30)));
            }
            // One more may be a fragment header.
            for _ in 0..self.0.u8(..9).saturating_sub(1) {
                frame = frame.extension(self.extension());
            }
            frame
        };
        if self.0.u8(..3) == 0 {
            frame = frame.fragment(self.fragment());
        }
        match self.0.u8(..6) {
            0 => frame = frame.vlan(self.0.u16(..4096)),
            1 => frame = frame.tag(TAG_SERVICE, self.0.u16(..)).vlan(self.0.u16(..4096)),
            _ => {}
        }
        let payload: Vec<u8> = (0..self.0.usize(12..64)).map(|_| self.0.u8(..)).collect();
        frame.transport(self.transport()).payload(&payload).build()
    }

    fn byte(&mut self) -> u8 {
        if self.0.bool() { *self.0.choice(&INTERESTING).unwrap() } else { self.0.u8(..) }
    }

    /// Changed in a few places, most of them in the headers.
    fn damage(&mut self, frame: &mut Vec<u8>) {
        for _ in 0..self.0.u8(1..4) {
            let end = if self.0.u8(..4) == 0 { frame.len() } else { frame.len().min(70) };
            if end <= 12 {
                return;
            }
            let at = self.0.usize(12..end);
            match self.0.u8(..8) {
                0 => frame.truncate(at.max(SHORTEST)),
                1 => drop(frame.remove(at)),
                2 => frame.insert(at, self.byte()),
                _ => frame[at] = self.byte(),
            }
        }
        frame.resize(frame.len().max(SHORTEST), 0);
    }

    /// Nothing but chance behind a type that is looked into.
    fn noise(&mut self) -> Vec<u8> {
        let mut frame: Vec<u8> =
            (0..self.0.usize(SHORTEST + 1..3000)).map(|_| self.byte()).collect();
        let (ether_type, start) = if self.0.bool() { ([8, 0], 0x40) } else { ([0x86, 0xdd], 0x60) };
        frame[12..14].copy_from_slice(&ether_type);
        frame[14] = start | frame[14] & 0x0f;
        frame
    }
}

/// Findings of a run, so that one that meets nothing fails.
#[derive(Debug, Default)]
struct Met {
    reach: [u32; 4],
    pieces: [u32; 3],
    protocols: BTreeSet<Option<u8>>,
    reasons: BTreeSet<Reason>,
}

impl Met {
    fn add(&mut self, facts: Result<Facts, Reason>) {
        match facts {
            Ok(facts) => {
                self.reach[facts.reach() as usize] += 1;
                self.pieces[facts.fragment() as usize] += 1;
                self.protocols.insert(facts.protocol());
            }
            Err(reason) => drop(self.reasons.insert(reason)),
        }
    }
}

/// Whole frames: the kernel, the host and etherparse say the same.
#[test]
fn kernel_host_and_etherparse_agree_on_whole_frames() {
    let program = program();
    let mut random = Random(fastrand::Rng::with_seed(1));
    let mut met = Met::default();
    for number in 0..FRAMES {
        let frame = random.frame();
        let facts = program.facts(&frame, CPU).unwrap();
        assert_eq!(facts, host(&frame), "frame {number}: {frame:02x?}");
        met.add(facts);
        let Ok(facts) = facts else { continue };
        if facts.reach() != Reach::TooDeep {
            let expected = oracle::etherparse(&frame);
            assert_eq!(oracle::parser(&facts), expected, "frame {number}: {frame:02x?}");
        }
    }
    println!("{met:?}");
    for reach in [Reach::Transport, Reach::LaterFragment, Reach::TooDeep] {
        assert!(met.reach[reach as usize] > FRAMES / 20, "{reach:?} in {met:?}");
    }
    assert!(met.reach[Reach::Cut as usize] == 0, "{met:?}");
    assert!(met.pieces[Piece::First as usize] > FRAMES / 20, "{met:?}");
    for protocol in [1, 6, 17, 33, 47, 50, 58, 59, 132, 136, 253] {
        assert!(met.protocols.contains(&Some(protocol)), "no {protocol} in {met:?}");
    }
}

/// Damaged frames and noise: the kernel and the host say the same.
#[test]
fn kernel_and_host_agree_on_any_frame() {
    let program = program();
    let mut random = Random(fastrand::Rng::with_seed(2));
    let mut met = Met::default();
    for number in 0..FRAMES {
        let frame = if number % 8 == 0 {
            random.noise()
        } else {
            let mut frame = random.frame();
            random.damage(&mut frame);
            frame
        };
        let facts = program.facts(&frame, CPU).unwrap();
        assert_eq!(facts, host(&frame), "frame {number}: {frame:02x?}");
        met.add(facts);
    }
    println!("{met:?}");
    assert!(met.reach.iter().all(|count| *count > FRAMES / 100), "{met:?}");
    assert!(met.pieces.iter().all(|count| *count > FRAMES / 100), "{met:?}");
    for reason in [Reason::NotIp, Reason::DeepVlan, Reason::Truncated, Reason::Malformed] {
        assert!(met.reasons.contains(&reason), "no {reason:?} in {met:?}");
    }
}

/// Every length of a chain around the bound, in a frame of several buffers: the kernel sees the
/// transport header in the first one, or gives up where the host does.
#[test]
fn long_chains_end_at_the_same_byte() {
    let program = program();
    let mut met = Met::default();
    for tags in 0..3 {
        for first in [0, 1, 127, 191, 247, 255] {
            for second in 0..=255 {
                let mut frame = Frame::ipv6([0x20; 16], [0xfd; 16])
                    .extension(Extension::Destination(first))
                    .extension(Extension::Destination(second))
                    .transport(Transport::Tcp { source: 1, destination: 2, flags: 2 })
                    .payload(&[0; 9000]);
                for _ in 0..tags {
                    frame = frame.vlan(1);
                }
                let frame = frame.build();
                let facts = program.facts(&frame, CPU).unwrap();
                assert_eq!(facts, host(&frame), "{tags} tags, {first} and {second}");
                met.add(facts);
            }
        }
    }
    for reach in [Reach::Transport, Reach::TooDeep] {
        assert!(met.reach[reach as usize] > 500, "{met:?}");
    }
}

/// The program takes half of the verifier's limit of a million at most, and the whole parser once
/// more is a small part of that.
#[test]
fn the_verifier_has_room_for_the_parser() {
    let mut program = program();
    let with_facts = verified(program.kernel());
    let dir = WorkDir::create("packet").unwrap();
    let bpffs = Bpffs::mount(dir.path().join("bpf")).unwrap();
    let options = Options {
        pin_dir: bpffs.path().join("limiter"),
        max_sources: 256,
        source_table: SourceTable::Hash,
        max_rules: 16,
        max_keys: 16,
        kernel_log: 0,
        tc_order: TcOrder::First,
        then: None,
    };
    let shipped = verified(&mut Kernel::open(SHIPPED, &options).unwrap());
    println!("verified instructions: {with_facts} with facts, {shipped} as shipped");
    assert!(with_facts <= 500_000, "{with_facts}");
    assert!(with_facts.saturating_sub(shipped) <= 50_000, "{with_facts} against {shipped}");
}

fn verified(kernel: &mut Kernel) -> u32 {
    verified_instructions(kernel.program_id(Hook::Xdp, Framing::Ethernet).unwrap()).unwrap()
}
