//! How long a word takes from one CPU to another: two processors on one die are nearer than on two,
//! and a virtual one may be moved.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use limiter_tests::cpu;

const ADDITIONS: u32 = 200_000;

/// Nanoseconds for each atomic addition, when some CPUs add to one word at the same time; their
/// mean.
pub(super) fn shared(cpus: &Range<usize>) -> Result<f64> {
    let (barrier, word) = (Barrier::new(cpus.len()), AtomicU64::new(0));
    let times: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .clone()
            .map(|cpu| {
                let (barrier, word) = (&barrier, &word);
                scope.spawn(move || {
                    let ready = cpu::pin(None, cpu).and_then(|()| cpu::real_time(None, 1));
                    barrier.wait();
                    ready?;
                    let began = Instant::now();
                    for _ in 0..ADDITIONS {
                        word.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(ADDITIONS))
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<_>>()
    })?;
    let count = f64::from(u32::try_from(times.len()).context("too many CPUs")?);
    Ok(times.iter().sum::<f64>() / count)
}
