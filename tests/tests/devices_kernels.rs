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
    self, Carried, DATAGRAMS, Far, KINDS, Kind, card, carried, wait_until_it_works,
};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use serde_json::Value;

/// Datagrams that the quota lets pass.
const QUOTA: u64 = 10;

/// An interface without Ethernet headers, which is there from the start: the program for them is
/// loaded then. Later, when the daemon has given up privileges, kernels before 6.18 refuse it.
const FIRST: &str = "dut0";

/// Bytes of a datagram.
const BYTES: usize = 100;

/// The longest until a device is limited or refused: the program for another kind of frames may
/// have to be loaded.
const SEEN_WITHIN: Duration = Duration::from_secs(240);

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
    devices::without_ethernet(&bed, FIRST)?;
    limiter.start()?;
    let mut wrong = Vec::new();
    for (place, kind) in (1..).zip(KINDS) {
        if kind.far == Far::Card && !card::are_there() {
            continue;
        }
        let cell = cell(&bed, &limiter, kind, column, place);
        let cell = cell.unwrap_or_else(|error| {
            println!("limiter-cell failed: {}: {error:#}", kind.row);
            wrong.push(kind.row);
            "failed".to_owned()
        });
        println!("limiter-cell: {} | {} | {} | {cell}", kind.table(), kind.row, column.name);
        devices::removed(&bed, &[FIRST])?;
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
    for (words, short) in [
        ("has no TCX", "no TCX"),
        ("frames limiter cannot read", "frames that limiter cannot read"),
    ] {
        if error.contains(words) {
            return Ok(short.to_owned());
        }
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

/// Checks of a card that is limited in both directions; in one before Linux 6.7.
const CHECKS: [&str; 4] = ["MTU 9000", "GRO off, on", "down, up", "unbound, bound"];

/// Cards under limits whose links change, or that leave and come back.
#[test]
fn cards_stay_limited() -> Result<()> {
    require_root();
    if !card::are_there() {
        println!("this machine has no emulated cards: `cargo xtask vm --devices --cards` has");
        return Ok(());
    }
    let bed = Testbed::create("cards")?;
    let both = has_tc()?;
    let rules = [quota(false), quota(true).replace("descriptors:\n  -", "  -")];
    let mut limiter = bed.limiter(&rules[..=usize::from(both)].concat())?;
    limiter.on("dut*").options(["--mode", "auto"]);
    if both {
        limiter.options(["--direction", "both"]);
    }
    limiter.start()?;
    let mut wrong = Vec::new();
    let cards = KINDS.iter().filter(|kind| kind.far == Far::Card);
    for (place, kind) in (1..).zip(cards) {
        let name = format!("dut{place}");
        let is_there = devices::made(&bed, kind, &name, Ipv4Addr::new(198, 51, 100, place))?;
        for (number, check) in (1..).zip(CHECKS) {
            let cell = if is_there {
                // A bucket of its own for each check.
                let far = Ipv4Addr::new(198, 51, 100, 10 * place + number);
                let cell = checked(&bed, &limiter, (kind, &name), check, far, both);
                cell.unwrap_or_else(|error| {
                    println!("limiter-cell failed: {}, {check}: {error:#}", kind.row);
                    wrong.push(format!("{}, {check}", kind.row));
                    "failed".to_owned()
                })
            } else {
                "not there".to_owned()
            };
            println!("limiter-cell: {} | {} | {check} | {cell}", kind.table(), kind.row);
        }
        devices::removed(&bed, &[])?;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    limiter.close()?;
    bed.close()
}

/// One change of a card, and traffic after it.
fn checked(
    bed: &Testbed,
    limiter: &Limiter,
    (kind, name): (&Kind, &str),
    check: &str,
    far: Ipv4Addr,
    both: bool,
) -> Result<String> {
    let near = &bed.receiver;
    bed.sender.ip(["address", "add", &format!("{far}/24"), "dev", "dev0"])?;
    ensure!(refusal(limiter, name)?.is_none(), "it is not limited");
    let mut bytes = BYTES;
    match check {
        "MTU 9000" => {
            let ends = [(&bed.sender, "dev0"), (near, name)];
            for (netns, interface) in ends {
                if let Err(error) = netns.ip(["link", "set", interface, "mtu", "9000"]) {
                    let said = format!("{error:#}");
                    let words = said.rsplit(": ").next().unwrap_or(&said);
                    return Ok(format!("refused: {}", words.trim_end_matches('.')));
                }
            }
            bytes = 8_000;
        }
        "GRO off, on" => {
            for state in ["off", "on"] {
                near.run("ethtool", ["-K", name, "gro", state])?;
            }
        }
        "down, up" => {
            for state in ["down", "up"] {
                near.ip(["link", "set", name, state])?;
            }
        }
        _ => {
            let address = Ipv4Addr::from(devices::NEAR);
            card::bound_again(near, name)?;
            near.ip(["address", "add", &format!("{address}/24"), "dev", name])?;
            near.ip(["link", "set", name, "up"])?;
            wait_until_attached_again(bed, limiter, name)?;
        }
    }
    wait_until_it_works(bed, far)?;
    let got = carried(bed, (kind, name), far, bytes)?;
    let wanted = Carried { into: Some(QUOTA), out: Some(if both { QUOTA } else { DATAGRAMS }) };
    ensure!(got == wanted, "{got:?} and not {wanted:?}: {}", limiter.said());
    Ok("yes".to_owned())
}

/// Waits until limiter is at every hook of the interface that has the name now.
fn wait_until_attached_again(bed: &Testbed, limiter: &Limiter, name: &str) -> Result<()> {
    let index = bed.receiver.link(name)?["ifindex"].clone();
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let found = reported(limiter, name)?;
        let is_limited = |at: &Value| at["ifindex"] == index && at["attached"] == true;
        if !found.is_empty() && found.iter().all(is_limited) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "not limited again: {found:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// True on Linux 6.7 and newer.
fn has_tc() -> Result<bool> {
    let name = rustix::system::uname();
    let mut parts = name.release().to_str()?.split(|c: char| !c.is_ascii_digit());
    let mut number = || -> Result<u32> { Ok(parts.next().context("no release")?.parse()?) };
    Ok((number()?, number()?) >= (6, 7))
}

#[test]
fn reasons_are_the_kernel_s_words() {
    let said = "dev0 takes no native XDP (Operation not supported (os error 95)): allow the slower";
    assert_eq!(reason(said).unwrap(), "Operation not supported");
    assert_eq!(
        reason("attaching to dev0: Invalid argument (os error 22)").unwrap(),
        "Invalid argument"
    );
    assert_eq!(reason("dut0: this kernel has no TCX, by which").unwrap(), "no TCX");
    reason("something else").unwrap_err();
}
