//! The program that gives each frame its source and sends it when it is due
//! (`tests/ebpf/src/live_frames.rs`).

use std::io;

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, MapData};
use aya::programs::{ProgramError, TestRun as _, TestRunAttrs, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use bytemuck::{Pod, Zeroable};

use super::generator::Regular;
use super::sources::{Family, SPREAD, Sources};

/// The object; empty when it was built without a BPF toolchain.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/live_frames"));

/// Groups of regular sources at most.
pub(super) const GROUPS: usize = 5;

/// Times are in 1/256 ns, so that the period of ten million frames a second is exact to 0.3 %.
const FRACTION: u32 = 8;

/// Parameters and state of the program: `Live` of the object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Live {
    /// Frames sent at most.
    frames: u64,
    /// Time between two frames; 0 for as fast as possible.
    period: u64,
    /// How sources are chosen: 0 for one, 1 uniform, 2 Zipf, 3 new ones, 4 new ones that send
    /// again.
    choice: u32,
    /// Of how many sources or octaves, or the number of the first new one.
    of: u32,
    family: u32,
    /// The word of a source is its number times this,
    spread: u32,
    /// of which these bits are taken,
    mask: u32,
    base: u32,
    /// Sum of the 16-bit words that the checksum is over, with zero for the word that changes.
    sum: u32,
    /// Out of which interface, by its index.
    interface: u32,
    /// New sources that send in turn, and how often each sends.
    block: u32,
    times: u32,
    pub(super) sent: u64,
    /// When the next one is due.
    due: u64,
    random: u64,
    /// How often the program ran, where it counts that.
    runs: u64,
    pub(super) groups: [Group; GROUPS],
}

/// A group of regular sources: the first without sources ends them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Group {
    period: u64,
    /// The changing word of the first source.
    first: u32,
    count: u32,
    pub(super) sent: u64,
    /// When the next one is due.
    due: u64,
}

const WORDS: usize = size_of::<Live>() / size_of::<u64>();

impl Live {
    /// A load that has not begun: `frames` at most, `per_second` or as fast as possible, out of an
    /// interface. `sum` is that of the words that the checksum is over but for the changing one.
    pub(super) fn new(
        (sources, family): (Sources, Family),
        (frames, per_second): (u64, Option<u32>),
        regular: &[Regular],
        (interface, sum): (u32, u32),
    ) -> Result<Self> {
        ensure!(regular.len() <= GROUPS, "at most {GROUPS} groups of regular sources");
        let mut groups = [Group::default(); GROUPS];
        for (group, &Regular { first, count, per_second }) in groups.iter_mut().zip(regular) {
            ensure!(count > 0, "a group without sources");
            let period = period(per_second)?;
            *group = Group { period, first, count, ..Group::default() };
        }
        let (choice, of) = match sources {
            Sources::One => (0, 0),
            Sources::Uniform(count) => (1, count),
            Sources::Zipf(octaves) => (2, octaves),
            Sources::New(first) => (3, first),
            Sources::Again { first, .. } => (4, first),
        };
        let (block, times) = match sources {
            Sources::Again { block, times, .. } => (block, times),
            _ => (0, 0),
        };
        Ok(Self {
            frames,
            period: per_second.map_or(Ok(0), period)?,
            choice,
            of,
            family: if family == Family::V4 { 4 } else { 6 },
            spread: SPREAD,
            mask: family.mask(),
            base: family.base(),
            sum,
            interface,
            block,
            times,
            groups,
            ..Self::default()
        })
    }
}

fn period(per_second: u32) -> Result<u64> {
    (1_000_000_000u64 << FRACTION)
        .checked_div(per_second.into())
        .context("no frames a second send nothing")
}

/// Offsets of the changing word of the source, and of the checksum that covers it.
pub(super) const fn places(family: Family) -> (usize, usize) {
    match family {
        // The last bytes of the address; the header's checksum.
        Family::V4 => (26, 24),
        // Bits 32 to 63 of the address; UDP's checksum.
        Family::V6 => (22 + 4, 14 + 40 + 6),
    }
}

pub(super) struct Progress(Array<MapData, [u64; WORDS]>);

impl Progress {
    pub(super) fn read(&self) -> Result<Live> {
        Ok(bytemuck::cast(self.0.get(&0, 0)?))
    }
}

pub(super) struct Program(Ebpf);

impl Program {
    pub(super) fn load(live: &Live) -> Result<(Self, Progress)> {
        ensure!(!OBJECT.is_empty(), "built without the BPF toolchain: run `cargo xtask setup`");
        let mut ebpf = EbpfLoader::new().load(&crate::program::aligned(OBJECT))?;
        let program = ebpf.program_mut("live_frames").context("no program live_frames")?;
        let program: &mut Xdp = program.try_into()?;
        program.load()?;
        let mut map = Array::try_from(ebpf.take_map("LIVE").context("no LIVE")?)?;
        map.set(0, bytemuck::cast::<Live, [u64; WORDS]>(*live), 0)?;
        Ok((Self(ebpf), Progress(map)))
    }

    /// Runs it on copies of a frame, `batch` at a time, and does what it says with them: sent is
    /// sent. The calling thread's network namespace is the one whose interfaces it knows. Returns
    /// when a signal comes, or all of 2^32 - 1 runs are done.
    pub(super) fn run(&self, frame: &[u8], batch: u32) -> Result<()> {
        let program: &Xdp = self.0.program("live_frames").context("no program")?.try_into()?;
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = u32::MAX;
        options.attrs = TestRunAttrs::new().xdp_live_frames(batch);
        match program.test_run(options) {
            Ok(_) => Ok(()),
            Err(ProgramError::SyscallError(error))
                if error.io_error.kind() == io::ErrorKind::Interrupted =>
            {
                Ok(())
            }
            Err(error) => Err(error).context("the kernel sends no live frames"),
        }
    }
}
