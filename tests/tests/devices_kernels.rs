//! Which device takes which hook in which mode, on the kernel that runs this: attached or refused,
//! and with a limit held by real packets. `cargo xtask bench devices` runs it on other kernels and
//! makes the tables of docs/devices.md of what it prints.
//!
//! One limiter is started for each hook and mode, and gets every device by a pattern of names.

// Also on other kernels, by bench devices: 1200 s each.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use limiter_tests::devices::{
    self, Carried, Far, KINDS, Kind, Load, QUOTA, carried, is_limited, wait_until_it_works, wanted,
};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;

struct Column {
    name: &'static str,
    options: &'static [&'static str],
    is_out: bool,
}

/// A quota for each address at the other end, which no time refills.
fn quota(is_out: bool) -> String {
    let direction = if is_out { "out" } else { "in" };
    format!(
        "descriptors:\n  - key: protocol\n    value: udp\n    direction: {direction}\n    \
         descriptors:\n      - key: remote_address\n        \
         rate_limit: {{rate: {QUOTA}/week, algorithm: fixed_window}}\n"
    )
}

/// The cells of a column, each printed as it is known. All are tried before one that is wrong
/// fails.
fn column(column: &Column) -> Result<()> {
    require_root();
    let bed = Testbed::create("devices")?;
    let mut limiter = bed.limiter(&quota(column.is_out))?;
    limiter.on("dut*").options(column.options.iter().copied());
    limiter.start()?;
    let mut wrong = Vec::new();
    for (place, kind) in (1..).zip(KINDS) {
        let cell = cell(&bed, &limiter, kind, column, place);
        let cell = cell.unwrap_or_else(|error| {
            println!("limiter-cell failed: {}: {error:#}", kind.row);
            wrong.push(kind.row);
            "failed".to_owned()
        });
        println!("limiter-cell: devices | {} | {} | {cell}", kind.row, column.name);
        devices::removed(&bed)?;
    }
    ensure!(wrong.is_empty(), "{}: {}", column.name, wrong.join(", "));
    limiter.close()?;
    bed.close()
}

/// Makes a device, waits for what limiter says of it, and sends.
fn cell(
    bed: &Testbed,
    limiter: &Limiter,
    kind: &Kind,
    column: &Column,
    place: u8,
) -> Result<String> {
    // Buckets are by the address at the other end, and a name belongs to one device.
    let (far, name) = (Ipv4Addr::new(198, 51, 100, place), format!("dut{place}"));
    if !devices::made(bed, kind, &name, far)? {
        return Ok("not there".to_owned());
    }
    if let Err(refused) = is_limited(limiter, &name)? {
        return Ok(refused);
    }
    if kind.far != Far::None {
        wait_until_it_works(bed, far)?;
    }
    let got = carried(bed, (kind, &name), far)?;
    let all = wanted(column.is_out, QUOTA, &Load::ONE_FLOW);
    let wanted = if kind.far == Far::None { Carried { into: None, ..all } } else { all };
    ensure!(got == wanted, "{got:?} and not {wanted:?}: {}", limiter.said());
    let is_unused = !column.is_out && got.into.is_none();
    Ok(if is_unused { "nothing comes in" } else { "yes" }.to_owned())
}

/// Each device at XDP in native mode: attached with its limit held, or refused.
#[test]
fn xdp_native() -> Result<()> {
    column(&Column { name: "XDP native", options: &["--mode", "native"], is_out: false })
}

/// Each device at XDP in generic mode: attached with its limit held, or refused.
#[test]
fn xdp_generic() -> Result<()> {
    column(&Column { name: "XDP generic", options: &["--mode", "generic"], is_out: false })
}

/// Each device at tc on the way in: attached with its limit held, or refused.
#[test]
fn tc_in() -> Result<()> {
    column(&Column { name: "tc in", options: &["--hook", "tc"], is_out: false })
}

/// Each device at tc on the way out: attached with its limit held, or refused.
#[test]
fn tc_out() -> Result<()> {
    column(&Column { name: "tc out", options: &["--direction", "out"], is_out: true })
}
