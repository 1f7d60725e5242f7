//! Starts of which a call fails.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;

use super::inject::{self, BPF, Calls, FILES, SOCKETS, Tally, WRITE};
use super::scene::{DRAINING, MANAGEMENT, contents, drain, ensure_clear, ensure_in_force};

/// The exit code in the words of [`Limiter::start`].
fn exit_code(refusal: &str) -> Option<i32> {
    let (_, rest) = refusal.split_once("exit status: ")?;
    rest.split_once(')')?.0.parse().ok()
}

/// The dynamic loader's own calls are not the daemon's.
fn is_loader(refusal: &str) -> bool {
    refusal.contains("error while loading shared libraries")
}

fn ensure_nothing_left(limiter: &Limiter, bed: &Testbed, when: &str) -> Result<()> {
    limiter.wait_until_detached().with_context(|| when.to_owned())?;
    ensure!(!limiter.pins().exists(), "{when}: {} is left", limiter.pins().display());
    let state = bed.dir.path().join("state");
    if state.exists() {
        let left = contents(&state)?;
        ensure!(left.is_empty(), "{when}: {:?} are left", left.keys());
    }
    for name in ["limiter.sock", "limiter.sock.new"] {
        ensure!(!bed.dir.path().join(name).exists(), "{when}: {name} is left");
    }
    Ok(())
}

fn bed(tag: &str) -> Result<(Testbed, Limiter)> {
    let bed = Testbed::create(tag)?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.options(["--management".to_owned(), std::net::Ipv4Addr::from(MANAGEMENT).to_string()]);
    Ok((bed, limiter))
}

/// Takes away all of a daemon that runs, and what it noted: the next start is a first one again.
fn take_away(limiter: &mut Limiter, bed: &Testbed) -> Result<()> {
    // Not by the daemon, which the fault may still wait for.
    limiter.kill()?;
    fs::remove_file(limiter.socket())?;
    limiter.on_pins("detach")?;
    // On a busy machine the kernel takes a moment longer to end the link, and the next start would
    // be refused for it: the last one has no fault that explains that.
    limiter.wait_until_detached()?;
    let state = bed.dir.path().join("state");
    if state.exists() {
        fs::remove_dir_all(&state)?;
    }
    Ok(())
}

/// A start with one fault of a sample: the calls that failed, and the refusal, if there was one.
/// The first call of a kind always fails.
fn start_with_fault(
    limiter: &mut Limiter,
    bed: &Testbed,
    calls: Calls,
    (number, error): (usize, &str),
    tally: &mut Tally,
) -> Result<(String, Option<String>)> {
    let log = bed.dir.path().join("strace");
    let start = inject::start(limiter, calls, number, error, &log)?;
    let when = format!("{error} at call {number} of {}", calls.names);
    ensure!(number > 1 || !start.injected.is_empty(), "{when}: no call failed");
    let refused = start.refusal.as_ref().is_some_and(|refusal| !is_loader(refusal));
    tally.count(!start.injected.is_empty(), refused);
    Ok((format!("{when}: {}", start.injected.join("; ")), start.refusal))
}

/// Runs starts where nothing is, with faults.
fn first_starts(tag: &str, kinds: &[Calls]) -> Result<Tally> {
    let (bed, mut limiter) = bed(tag)?;
    let counted = inject::count(&mut limiter, kinds, &bed.dir.path().join("strace"))?;
    ensure_in_force(&bed, 5, "without a fault")?;
    take_away(&mut limiter, &bed)?;
    let mut tally = Tally::default();
    for (calls, case) in inject::cases(kinds, &counted) {
        match start_with_fault(&mut limiter, &bed, calls, case, &mut tally)? {
            (_, Some(refusal)) if is_loader(&refusal) => {}
            (when, Some(refusal)) => {
                let said = refusal.replace("): ", ")\n");
                ensure_clear(exit_code(&refusal), &said, &when)?;
                ensure_nothing_left(&limiter, &bed, &format!("{when}: {refusal}"))?;
            }
            (when, None) => {
                ensure_in_force(&bed, 5, &when)?;
                take_away(&mut limiter, &bed).with_context(|| when.clone())?;
            }
        }
    }
    limiter.start().context("the start after the faults")?;
    ensure_in_force(&bed, 5, "after the faults")?;
    limiter.close()?;
    bed.close()?;
    Ok(tally)
}

/// Runs starts that take over, with faults.
fn adopting_starts(tag: &str, kinds: &[Calls]) -> Result<Tally> {
    let (bed, mut limiter) = bed(tag)?;
    limiter.start()?;
    drain(&bed)?;
    limiter.kill()?;
    let counted = inject::count(&mut limiter, kinds, &bed.dir.path().join("strace"))?;
    ensure_in_force(&bed, 0, "without a fault")?;
    let mut tally = Tally::default();
    for (calls, case) in inject::cases(kinds, &counted) {
        if limiter.pid().is_some() {
            limiter.kill()?;
        }
        let (when, refusal) = start_with_fault(&mut limiter, &bed, calls, case, &mut tally)?;
        if let Some(refusal) = refusal.filter(|refusal| !is_loader(refusal)) {
            ensure_clear(exit_code(&refusal), &refusal.replace("): ", ")\n"), &when)?;
        }
        ensure_in_force(&bed, 0, &when)?;
    }
    if limiter.pid().is_none() {
        limiter.start().context("the start after the faults")?;
        ensure_in_force(&bed, 0, "after the faults")?;
    }
    limiter.close()?;
    bed.close()?;
    Ok(tally)
}

#[test]
fn a_first_start_of_which_a_bpf_call_fails_leaves_nothing() -> Result<()> {
    require_root();
    first_starts("faultbpf", &[BPF])?.ensure_faults()
}

#[test]
fn a_first_start_of_which_a_file_call_fails_leaves_nothing() -> Result<()> {
    require_root();
    first_starts("faultfile", &FILES)?.ensure_faults()
}

#[test]
fn a_first_start_of_which_a_socket_call_fails_leaves_nothing() -> Result<()> {
    require_root();
    first_starts("faultsock", &[WRITE, SOCKETS])?.ensure_faults()
}

#[test]
fn a_start_that_takes_over_and_of_which_a_bpf_call_fails_keeps_the_limits() -> Result<()> {
    require_root();
    adopting_starts("faultadopt", &[BPF])?.ensure_faults()
}

#[test]
fn a_start_that_takes_over_and_of_which_a_file_call_fails_keeps_the_limits() -> Result<()> {
    require_root();
    adopting_starts("faultafile", &FILES)?.ensure_faults()
}
