//! Programs that are not limiter's, for tests of what limiter does beside them
//! (`tests/ebpf/src/foreign.rs`).

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use aya::maps::Array;
use aya::programs::links::LinkOrder;
use aya::programs::tc::{TcAttachOptions, TcAttachType};
use aya::programs::{SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader};

/// The object; empty when it was built without a BPF toolchain.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foreign"));

fn load(loader: &mut EbpfLoader<'_>) -> Result<Ebpf> {
    ensure!(!OBJECT.is_empty(), "built without the BPF toolchain: run `cargo xtask setup`");
    Ok(loader.load(&crate::program::aligned(OBJECT))?)
}

fn pin_xdp(ebpf: &mut Ebpf, name: &str, path: &Path) -> Result<u32> {
    let program: &mut Xdp =
        ebpf.program_mut(name).with_context(|| format!("no program {name}"))?.try_into()?;
    program.load()?;
    program.pin(path)?;
    Ok(program.info()?.id())
}

fn seen(ebpf: &Ebpf, index: u32) -> Result<u64> {
    let seen: Array<_, u64> = ebpf.map("SEEN").context("no map SEEN")?.try_into()?;
    Ok(seen.get(&index, 0)?)
}

/// Loads a program named `foreign` that passes everything, and pins it at `path` on a BPF file
/// system, from where `ip link set dev X xdp pinned PATH` takes it. It takes no frames in several
/// buffers.
///
/// # Errors
///
/// Without root or a BPF toolchain at build time, or when `path` is not on a BPF file system.
pub fn pin_pass_program(path: &Path) -> Result<()> {
    pin_xdp(&mut load(&mut EbpfLoader::new())?, "foreign", path).map(drop)
}

/// Loads a program for tc, and pins it at `path`.
///
/// # Errors
///
/// As of [`pin_pass_program`].
pub fn pin_tc_program(path: &Path) -> Result<()> {
    let mut ebpf = load(&mut EbpfLoader::new())?;
    let program: &mut SchedClassifier =
        ebpf.program_mut("foreign_tc").context("no program foreign_tc")?.try_into()?;
    program.load()?;
    Ok(program.pin(path)?)
}

/// An XDP program that counts packets, and drops the datagrams to one port.
#[derive(Debug)]
pub struct PortDropper {
    ebpf: Ebpf,
    /// The kernel's id of it.
    pub id: u32,
}

impl PortDropper {
    /// Loads it, and pins it at `path`.
    ///
    /// # Errors
    ///
    /// As of [`pin_pass_program`].
    pub fn pin(path: &Path, port: u16) -> Result<Self> {
        let mut ebpf = load(EbpfLoader::new().override_global("PORT", &port, true))?;
        let id = pin_xdp(&mut ebpf, "foreign_port", path)?;
        Ok(Self { ebpf, id })
    }

    /// Packets that it was asked about.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn asked(&self) -> Result<u64> {
        seen(&self.ebpf, 0)
    }

    /// Packets that it dropped.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn dropped(&self) -> Result<u64> {
        seen(&self.ebpf, 1)
    }
}

/// A program at tc that counts packets and gives each the same answer. It is gone once this is
/// dropped.
#[derive(Debug)]
pub struct AtTc {
    ebpf: Ebpf,
    /// The kernel's id of it.
    pub id: u32,
}

impl AtTc {
    /// Attaches it to an interface of this network namespace.
    ///
    /// # Errors
    ///
    /// Without root, TCX, or a BPF toolchain at build time.
    pub fn attach(
        interface: &str,
        place: TcAttachType,
        order: LinkOrder,
        answer: i32,
    ) -> Result<Self> {
        let mut ebpf = load(EbpfLoader::new().override_global("ANSWER", &answer, true))?;
        let program: &mut SchedClassifier =
            ebpf.program_mut("foreign_tc").context("no program foreign_tc")?.try_into()?;
        program.load()?;
        program.attach_with_options(interface, place, TcAttachOptions::TcxOrder(order))?;
        let id = program.info()?.id();
        Ok(Self { ebpf, id })
    }

    /// Packets that it was asked about.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn asked(&self) -> Result<u64> {
        seen(&self.ebpf, 0)
    }
}
