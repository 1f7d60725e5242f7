//! Builds the XDP program, to be embedded. Compressed: the object would be a twentieth of the
//! binary, and its pages are most of the daemon's memory.

use std::env;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use limiter_ebpf_build::Objects;

const SHIPPED: Objects<'_> = Objects {
    package: "limiter-ebpf",
    directory: "limiter-ebpf",
    features: &["shipped"],
    binaries: &["limiter", "limiter-tc"],
};

fn main() -> Result<()> {
    limiter_ebpf_build::build("../..", &[SHIPPED])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    for name in SHIPPED.binaries {
        let file = File::create(out.join(name).with_added_extension("zlib"))?;
        let mut compressed = ZlibEncoder::new(file, Compression::best());
        compressed.write_all(&fs::read(out.join(name))?)?;
        compressed.finish()?;
    }
    Ok(())
}
