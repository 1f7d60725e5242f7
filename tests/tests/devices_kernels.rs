//! Which device takes which hook in which mode, on the kernel that runs this: attached or refused,
//! and with a limit held by real packets. `cargo xtask vm --devices` runs it on other kernels and
//! makes the tables of docs/tested-on.md of what it prints.
//!
//! One limiter is started for each hook and mode, and gets every device by a pattern of names.

// Also on other kernels, by --devices: 1200 s each.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::devices::{
    self, Carried, DATAGRAMS, Far, KINDS, Kind, carried, wait_until_it_works,
};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use serde_json::Value;

/// Datagrams that the quota lets pass.
const QUOTA: u64 = 10;

/// Bytes of a datagram.
const BYTES: usize = 100;

/// The longest until a device is limited or refused: the program for another kind of frames may
/// have to be loaded.
const SEEN_WITHIN: Duration = Duration::from_mins(4);

/// A column of the table.
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
    if let Some(reason) = refusal(limiter, &name)? {
        return Ok(format!("refused: {reason}"));
    }
    if kind.far != Far::None {
        wait_until_it_works(bed, far)?;
    }
    let got = carried(bed, (kind, &name), far, BYTES)?;
    let of = |is_out| if column.is_out == is_out { QUOTA } else { DATAGRAMS };
    let wanted = Carried { into: (kind.far != Far::None).then(|| of(false)), out: Some(of(true)) };
    ensure!(got == wanted, "{got:?} and not {wanted:?}: {}", limiter.said());
    let is_unused = !column.is_out && got.into.is_none();
    Ok(if is_unused { "taken; nothing comes in" } else { "yes" }.to_owned())
}

/// What `status` has of an interface, or nothing while the daemon has no time to answer: it may be
/// loading the program for another kind of frames, which takes minutes where it is emulated.
fn reported(limiter: &Limiter, name: &str) -> Result<Vec<Value>> {
    let Ok(status) = limiter.json(&["status"]) else { return Ok(Vec::new()) };
    let all = status["interfaces"].as_array().context("no interfaces")?;
    Ok(all.iter().filter(|at| at["name"] == name).cloned().collect())
}

/// Why limiter does not limit the device; none if it does.
fn refusal(limiter: &Limiter, name: &str) -> Result<Option<String>> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let found = reported(limiter, name)?;
        if let Some(error) = found.iter().find_map(|at| at["error"].as_str()) {
            return Ok(Some(reason(error)?));
        }
        if !found.is_empty() && found.iter().all(|at| at["attached"] == true) {
            return Ok(None);
        }
        ensure!(Instant::now() < deadline, "neither limited nor refused: {}", limiter.said());
        thread::sleep(Duration::from_millis(50));
    }
}

/// A refusal in a few words: those of the kernel, or of limiter.
fn reason(error: &str) -> Result<String> {
    if error.contains("frames limiter cannot read") {
        return Ok("frames that limiter cannot read".to_owned());
    }
    // `... (Operation not supported (os error 95)): ...`
    let Some((before, _)) = error.split_once(" (os error ") else { bail!("{error}") };
    let words = before.rsplit(['(', ':']).next().context("no words")?;
    Ok(words.trim().to_owned())
}

#[test]
fn xdp_native() -> Result<()> {
    column(&Column { name: "XDP native", options: &["--mode", "native"], is_out: false })
}

#[test]
fn xdp_generic() -> Result<()> {
    column(&Column { name: "XDP generic", options: &["--mode", "generic"], is_out: false })
}

#[test]
fn tc_in() -> Result<()> {
    column(&Column { name: "tc in", options: &["--hook", "tc"], is_out: false })
}

#[test]
fn tc_out() -> Result<()> {
    column(&Column { name: "tc out", options: &["--direction", "out"], is_out: true })
}

#[test]
fn reasons_are_the_kernel_s_words() {
    let said = "dev0 takes no native XDP (Operation not supported (os error 95)): allow the slower";
    assert_eq!(reason(said).unwrap(), "Operation not supported");
    assert_eq!(
        reason("attaching to dev0: Invalid argument (os error 22)").unwrap(),
        "Invalid argument"
    );
    reason("something else").unwrap_err();
}
