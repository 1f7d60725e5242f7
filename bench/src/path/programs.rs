//! Programs that are not limiter's, attached where limiter would be.

use anyhow::{Context as _, Result, ensure};
use aya::maps::Array;
use aya::programs::tc::TcAttachType;
use aya::programs::{SchedClassifier, Xdp, xdp::XdpMode};
use aya::{Ebpf, EbpfLoader};
use limiter_tests::netns::Netns;
use limiter_tests::veth::RECEIVER;

/// The object; empty when it was built without a BPF toolchain.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/limiter-bench"));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// XDP that only drops.
    Drop,
    /// XDP that limits, written by hand.
    Paced,
    /// The hand-written program at tc, for what comes in.
    PacedTc,
    /// The hand-written program at tc, for what goes out.
    PacedOut,
    /// At tc, what only drops what comes in.
    DropTc,
    /// At tc, what only drops what goes out.
    DropOut,
    /// At tc, what makes the source of what comes in its destination.
    Turn,
}

impl Program {
    /// Its name, and where it is at tc; none at XDP.
    const fn place(self) -> (&'static str, Option<TcAttachType>) {
        match self {
            Self::Drop => ("empty", None),
            Self::Paced => ("paced_xdp", None),
            Self::PacedTc => ("paced_tc", Some(TcAttachType::Ingress)),
            Self::PacedOut => ("paced_tc_out", Some(TcAttachType::Egress)),
            Self::DropTc => ("empty_tc", Some(TcAttachType::Ingress)),
            Self::DropOut => ("empty_tc", Some(TcAttachType::Egress)),
            Self::Turn => ("turn", Some(TcAttachType::Ingress)),
        }
    }
}

/// Attaches one, natively, with room for `entries` addresses. It goes with what is returned.
pub(super) fn attach(
    program: Program,
    netns: &Netns,
    (cost, tolerance): (u64, u64),
    entries: u32,
) -> Result<Ebpf> {
    ensure!(!OBJECT.is_empty(), "built without the BPF toolchain: run `cargo xtask setup`");
    let mut ebpf = EbpfLoader::new()
        .map_max_entries("REFERENCE_V4", 1)
        .map_max_entries("REFERENCE_V6", 1)
        .map_max_entries("PACED", entries)
        .load(&limiter_tests::program::aligned(OBJECT))?;
    let pace = ebpf.map_mut("PACE").context("no PACE")?;
    Array::<_, [u64; 2]>::try_from(pace)?.set(0, [cost, tolerance], 0)?;
    let (name, at_tc) = program.place();
    let found = ebpf.program_mut(name).with_context(|| format!("no program {name}"))?;
    // An interface is looked up in the namespace of the thread.
    netns.enter(|| {
        if let Some(direction) = at_tc {
            let found: &mut SchedClassifier = found.try_into()?;
            found.load()?;
            found.attach(RECEIVER.interface, direction)?;
        } else {
            let found: &mut Xdp = found.try_into()?;
            found.load()?;
            found.attach(RECEIVER.interface, XdpMode::Driver)?;
        }
        anyhow::Ok(())
    })??;
    Ok(ebpf)
}
