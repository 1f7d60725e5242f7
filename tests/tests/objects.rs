//! Sections of the object that the binary carries: BTF, and no DWARF.

use anyhow::{Result, ensure};
use object::{Object as _, ObjectSection as _};

/// DWARF is most of what LLVM writes, and nobody reads it once there is the BTF.
#[test]
fn the_object_has_btf_and_no_dwarf() -> Result<()> {
    let object = limiter_objects::program();
    let file = object::File::parse(&*object)?;
    let names: Vec<_> = file.sections().filter_map(|of| Some(of.name().ok()?.to_owned())).collect();
    ensure!(names.iter().any(|name| name == ".BTF"), "{names:?}");
    ensure!(!names.iter().any(|name| name.contains("debug")), "{names:?}");
    Ok(())
}
