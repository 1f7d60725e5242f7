//! The shipped program on the kernel that runs this: its verifier takes it, with room to spare.

use limiter_tests::bpffs::Bpffs;
use limiter_tests::root::require_root;
use limiter_tests::work_dir::WorkDir;
use limiter_userspace::datapath::{Kernel, Options};

/// Half of the kernel's limit of a million.
const ROOM: u32 = 500_000;

/// With the daemon's own sizes, so that the maps are those of a real start.
#[test]
fn the_verifier_has_room() {
    require_root();
    let dir = WorkDir::create("verifier").unwrap();
    let bpffs = Bpffs::mount(dir.path().join("bpf")).unwrap();
    let options = Options {
        pin_dir: bpffs.path().join("limiter"),
        max_sources: 262_144,
        max_rules: 16_384,
        max_keys: 65_536,
        kernel_log: 0,
    };
    let mut kernel = Kernel::open(&options).unwrap();
    let verified = kernel.verified_instructions().unwrap();
    println!("verified instructions: {verified}, of the shipped program");
    assert!(verified <= ROOM, "{verified}");
}
