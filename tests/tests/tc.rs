//! The program for tc: that the kernel takes it, and that it decides as the model does.

use anyhow::Result;
use limiter_common::header::Direction;
use limiter_datapath::{Datapath as _, Framing, Hook, Kernel, Options, TcOrder};
use limiter_tests::bpffs::Bpffs;
use limiter_tests::program::{SHIPPED, SOURCE_STORES};
use limiter_tests::root::require_root;
use limiter_tests::test_run::verified_instructions;
use limiter_tests::work_dir::WorkDir;

#[test]
fn the_kernel_takes_the_program_in_both_directions() -> Result<()> {
    require_root();
    let dir = WorkDir::create("tc")?;
    let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
    for (number, source_table) in SOURCE_STORES.into_iter().enumerate() {
        let options = Options {
            pin_dir: bpffs.path().join(number.to_string()),
            max_sources: 64,
            max_keys: 64,
            max_rules: 64,
            source_table,
            kernel_log: 0,
            tc_order: TcOrder::First,
            then: None,
        };
        let mut kernel = Kernel::open(SHIPPED, &options)?;
        for direction in [Direction::In, Direction::Out] {
            for framing in [Framing::Ethernet, Framing::Layer3] {
                let id = kernel.program_id(Hook::Tc(direction), framing)?;
                let walked = verified_instructions(id)?;
                println!("{source_table:?} {} {}: {walked}", direction.name(), framing.program());
            }
        }
        Box::new(kernel).detach()?;
    }
    Ok(())
}
