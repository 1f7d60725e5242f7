//! Every CPU of this machine at one key at once.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use limiter_common::verdict::Reason;

use crate::cpu;
use crate::program::Program;

/// The longest that a limit takes to be used up.
const PATIENCE: Duration = Duration::from_mins(1);

/// The CPUs of this machine.
///
/// # Errors
///
/// With fewer than two, which race with nobody.
pub fn cpus() -> Result<u32> {
    let cpus = thread::available_parallelism()?.get();
    ensure!(cpus >= 2, "concurrency needs two CPUs: this machine has {cpus}");
    Ok(u32::try_from(cpus)?)
}

/// How often a race is run: `LIMITER_SHORTER=5` is a fifth of it, for a slow machine.
pub fn rounds(rounds: u32) -> u32 {
    let divisor = env::var("LIMITER_SHORTER").ok().and_then(|text| text.parse().ok());
    (rounds / divisor.unwrap_or(1)).max(1)
}

/// Runs the program on a frame on every CPU, `batch` times in a row, until `work` has returned.
///
/// # Errors
///
/// When there is one CPU, or the kernel refuses a run.
pub fn hammer<T>(
    program: &Program,
    frame: &[u8],
    batch: u32,
    work: impl FnOnce() -> T,
) -> Result<T> {
    let cpus = cpus()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let start = |cpu| {
            let stop = &stop;
            scope.spawn(move || -> Result<()> {
                cpu::pin(None, usize::try_from(cpu)?)?;
                while !stop.load(Ordering::Relaxed) {
                    program.run(frame, batch)?;
                }
                Ok(())
            })
        };
        let threads: Vec<_> = (0..cpus).map(start).collect();
        let done = {
            // Also when it panics: the scope waits for them.
            let _stop = Stop(&stop);
            work()
        };
        for thread in threads {
            thread.join().map_err(|_panic| anyhow!("a CPU's thread panicked"))??;
        }
        Ok(done)
    })
}

/// Tells the CPUs on drop that they are to stop.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Packets that left the program with a reason.
///
/// # Errors
///
/// When the map cannot be read.
pub fn packets(program: &Program, reason: Reason) -> Result<u64> {
    Ok(program.reasons()?[reason.index() as usize].packets)
}

/// Waits until the limit is used up: `dropped` packets are dropped, and none passes meanwhile.
///
/// # Errors
///
/// When it is not within a minute.
pub fn drain(program: &Program, dropped: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = packets(program, Reason::Conforming)?;
        let enough = packets(program, Reason::OverLimit)? + dropped;
        while packets(program, Reason::OverLimit)? < enough {
            ensure!(Instant::now() < deadline, "the limit is not used up within {PATIENCE:?}");
            thread::yield_now();
        }
        if packets(program, Reason::Conforming)? == before {
            return Ok(());
        }
    }
}
