//! Running limiter's program for tc on a packet of one's own (`BPF_PROG_TEST_RUN`).

use anyhow::{Context as _, Result};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use limiter_common::header::Direction;
use limiter_datapath::{Framing, Hook, Kernel, Way};
use limiter_decision::packet::Segments;

use crate::test_run::{MARGIN, Runner, TestRun, program_info};

/// `TCX_NEXT`, `TC_ACT_SHOT` and `TC_ACT_REDIRECT` of `include/uapi/linux/bpf.h` and `pkt_cls.h`.
const NEXT: u32 = u32::MAX;
const SHOT: u32 = 2;
const REDIRECT: u32 = 7;

/// Where the time of departure is in `struct __sk_buff`, in words of 32 bits.
const TSTAMP: usize = 38;

/// A program for tc of a [`Kernel`], by an open descriptor of its own.
#[derive(Debug)]
pub struct TcRunner(SchedClassifier);

impl TcRunner {
    /// Opens the program for such frames in a direction, which is loaded first if it is not yet.
    ///
    /// # Errors
    ///
    /// Without root, or when the program does not load.
    pub fn open(kernel: &mut Kernel, direction: Direction, framing: Framing) -> Result<Self> {
        let info = program_info(kernel.program_id(Hook::Tc(direction), framing)?)?;
        Ok(Self(SchedClassifier::from_program_info(info, framing.program().into())?))
    }

    /// Runs the program on a frame of at least 14 bytes, which is a super-frame if `segments` says
    /// so.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn run(&self, frame: &[u8], segments: Option<Segments>) -> Result<TestRun> {
        let context = context(frame, segments)?;
        let mut out = vec![0; frame.len() + MARGIN];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.ctx_in = Some(&context);
        options.data_out = Some(&mut out);
        let mut left = vec![0; context.len()];
        options.ctx_out = Some(&mut left);
        let result = self.0.test_run(options)?;
        let way = match result.return_value {
            NEXT => Some(Way::Pass),
            SHOT => Some(Way::Drop),
            REDIRECT => Some(Way::Back),
            _ => None,
        };
        out.truncate(usize::try_from(result.data_size_out)?);
        let departure = left.get(4 * TSTAMP..).and_then(|bytes| bytes.first_chunk());
        let departure = u64::from_ne_bytes(*departure.context("no such field")?);
        let departure = (departure != 0).then_some(departure);
        Ok(TestRun { way, frame: out, departure, duration: result.duration })
    }

    /// The maps that only the program for tc has, as the runner of XDP opens its own.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn map(&self, name: &str) -> Result<aya::maps::Map> {
        Runner::map_of(&self.0.info()?, name)
    }
}

/// `struct __sk_buff` as a test run takes it. All that a test run cannot set is zero, which the
/// kernel insists on.
fn context(frame: &[u8], segments: Option<Segments>) -> Result<Vec<u8>> {
    const WORDS: usize = 48;
    // Offsets in words of 32 bits.
    const IFINDEX: usize = 10;
    const WIRE_LEN: usize = 40;
    const GSO_SEGS: usize = 41;
    const GSO_SIZE: usize = 44;
    let mut words = [0_u32; WORDS];
    let mut set = |at: usize, value: u32| -> Result<()> {
        *words.get_mut(at).context("no such field")? = value;
        Ok(())
    };
    // The loopback interface: the kernel looks it up in the namespace of the caller.
    set(IFINDEX, 1)?;
    set(WIRE_LEN, u32::try_from(frame.len())?)?;
    if let Some(Segments { count, size }) = segments {
        set(GSO_SEGS, count)?;
        set(GSO_SIZE, size)?;
    }
    Ok(words.map(u32::to_ne_bytes).concat())
}
