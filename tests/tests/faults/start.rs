//! Starts of which a call fails.

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;

use super::inject::{self, BPF, Calls, FILES, OPEN, SOCKETS, Tally, WRITE};
use super::scene::{DRAINING, MANAGEMENT, contents, drain, ensure_clear, ensure_in_force};

/// More calls than any start has.
const MOST: usize = 1000;

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

/// Runs starts where nothing is, with faults.
fn first_starts(tag: &str, calls: Calls) -> Result<Tally> {
    let (bed, mut limiter) = bed(tag)?;
    let log = bed.dir.path().join("strace");
    let mut tally = Tally::default();
    for (number, error) in calls.cases(MOST) {
        let when = format!("{error} at call {number} of {}", calls.names);
        let start = inject::start(&mut limiter, calls, number, error, &log)?;
        let when = format!("{when}: {}", start.injected.join("; "));
        let refused = start.refusal.as_ref().is_some_and(|refusal| !is_loader(refusal));
        tally.count(!start.injected.is_empty(), refused);
        match start.refusal {
            Some(refusal) if is_loader(&refusal) => {}
            Some(refusal) => {
                let said = refusal.replace("): ", ")\n");
                ensure_clear(exit_code(&refusal), &said, &when)?;
                ensure_nothing_left(&limiter, &bed, &format!("{when}: {refusal}"))?;
                continue;
            }
            None => {
                ensure_in_force(&bed, 5, &when)?;
                // Not by the daemon, which the fault may still wait for.
                limiter.kill()?;
                std::fs::remove_file(limiter.socket())?;
                limiter.on_pins("detach")?;
                // On a busy machine the kernel takes a moment longer to end the link, and the next
                // start would be refused for it: the last one has no fault that explains that.
                limiter.wait_until_detached().with_context(|| when.clone())?;
                // What a daemon that ran notes is there for the next start, and this is to be a
                // first one again.
                let state = bed.dir.path().join("state");
                if state.exists() {
                    std::fs::remove_dir_all(&state)?;
                }
            }
        }
        if start.injected.is_empty() {
            limiter.start().context("the start after the faults")?;
            ensure_in_force(&bed, 5, "after the faults")?;
            limiter.close()?;
            bed.close()?;
            return Ok(tally);
        }
    }
    bail!("no start was let through")
}

/// Runs starts that take over, with faults.
fn adopting_starts(tag: &str, calls: Calls) -> Result<Tally> {
    let (bed, mut limiter) = bed(tag)?;
    let log = bed.dir.path().join("strace");
    limiter.start()?;
    drain(&bed)?;
    let mut tally = Tally::default();
    for (number, error) in calls.cases(MOST) {
        if limiter.pid().is_some() {
            limiter.kill()?;
        }
        let when = format!("{error} at call {number} of {}", calls.names);
        let start = inject::start(&mut limiter, calls, number, error, &log)?;
        let when = format!("{when}: {}", start.injected.join("; "));
        let refused = start.refusal.as_ref().is_some_and(|refusal| !is_loader(refusal));
        tally.count(!start.injected.is_empty(), refused);
        match start.refusal {
            Some(refusal) if is_loader(&refusal) => {}
            Some(refusal) => {
                let said = refusal.replace("): ", ")\n");
                ensure_clear(exit_code(&refusal), &said, &when)?;
            }
            None => {}
        }
        ensure_in_force(&bed, 0, &when)?;
        if start.injected.is_empty() {
            ensure!(limiter.pid().is_some(), "no start was let through");
            limiter.close()?;
            bed.close()?;
            return Ok(tally);
        }
    }
    bail!("no start was let through")
}

#[test]
fn a_first_start_of_which_a_bpf_call_fails_leaves_nothing() -> Result<()> {
    require_root();
    first_starts("faultbpf", BPF)?.ensure_faults()
}

#[test]
fn a_first_start_of_which_a_file_call_fails_leaves_nothing() -> Result<()> {
    require_root();
    let mut tally = first_starts("faultopen", OPEN)?;
    for calls in FILES {
        tally += first_starts("faultfile", calls)?;
    }
    tally.ensure_faults()
}

#[test]
fn a_first_start_of_which_a_socket_call_fails_leaves_nothing() -> Result<()> {
    require_root();
    let mut tally = first_starts("faultwrite", WRITE)?;
    tally += first_starts("faultsock", SOCKETS)?;
    tally.ensure_faults()
}

#[test]
fn a_start_that_takes_over_and_of_which_a_bpf_call_fails_keeps_the_limits() -> Result<()> {
    require_root();
    adopting_starts("faultadopt", BPF)?.ensure_faults()
}

#[test]
fn a_start_that_takes_over_and_of_which_a_file_call_fails_keeps_the_limits() -> Result<()> {
    require_root();
    let mut tally = adopting_starts("faultaopen", OPEN)?;
    for calls in FILES {
        tally += adopting_starts("faultafile", calls)?;
    }
    tally.ensure_faults()
}
