//! Sections of the objects that the binary carries: BTF, and no DWARF.

use anyhow::{Context as _, Result, ensure};
use object::{Object as _, ObjectSection as _};

/// The shipped programs, by the store of their sources.
const SHIPPED: [(&str, Object); 2] =
    [("hash maps", limiter_objects::hash), ("lines", limiter_objects::lines)];

type Object = fn() -> Vec<u8>;

/// DWARF is most of what LLVM writes, and nobody reads it once there is the BTF.
#[test]
fn objects_have_btf_and_no_dwarf() -> Result<()> {
    for (store, object) in SHIPPED {
        let object = object();
        let file = object::File::parse(&*object).with_context(|| format!("sources in {store}"))?;
        let names: Vec<_> =
            file.sections().filter_map(|of| Some(of.name().ok()?.to_owned())).collect();
        ensure!(names.iter().any(|name| name == ".BTF"), "sources in {store}: {names:?}");
        ensure!(!names.iter().any(|name| name.contains("debug")), "sources in {store}: {names:?}");
    }
    Ok(())
}
