//! A million counters: read, ordered, looked at; beside the raw reading of the map in batches.

use std::os::fd::AsFd as _;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use aya::maps::MapData;
use limiter_common::wire::map;
use limiter_tests::bpf;
use limiter_tests::process;

use super::raw::{self, Raw};
use crate::crowd::{self, Crowd};
use crate::spread::Spread;

/// Looks of `limiter top` that are measured together: their processor time is counted in hundredths
/// of a second.
const LOOKS: u32 = 50;

pub(super) struct Counters {
    pub(super) tracked: u64,
    /// Seconds: all entries by batches, and no more than read.
    pub(super) raw: Spread,
    /// The first 20 by drops, from the command line: by the clock, and the daemon's processor time
    /// over that of the raw reading.
    pub(super) top: Spread,
    pub(super) top_processor: Spread,
    pub(super) over_raw: Spread,
    /// The first 20 by rate, which takes a quarter of a second of waiting.
    pub(super) by_rate: Spread,
    /// The longest that another request waited meanwhile, in milliseconds.
    pub(super) waited: f64,
    /// A refresh of `limiter top`, in milliseconds: by the clock, and of the daemon's processor
    /// time.
    pub(super) look: Spread,
    pub(super) look_processor: f64,
}

pub(super) fn measure(count: u32, rounds: usize) -> Result<Counters> {
    let crowd = Crowd::gather(count)?;
    let pid = crowd.pid()?;
    let pin = crowd.limiter.pins().join("maps").join(map::SOURCES_V4);
    let sources =
        MapData::from_pin(&pin).with_context(|| format!("cannot open {}", pin.display()))?;
    let mut times: [Vec<f64>; 5] = Default::default();
    let mut tracked = 0;
    for _ in 0..rounds {
        let (raw, entries) = read(&sources)?;
        ensure!(entries >= count.into(), "{entries} sources were read");
        let before = process::processor(pid)?;
        let began = Instant::now();
        let list = crowd.limiter.json(&["sources", "--by", "dropped", "--top", "20"])?;
        let top = began.elapsed().as_secs_f64();
        let used = process::processor(pid)? - before;
        tracked = crowd::number(&list, "/tracked_v4")?;
        ensure!(tracked >= count.into(), "{tracked} sources were counted");
        let began = Instant::now();
        crowd.limiter.json(&["sources", "--by", "rate", "--top", "20"])?;
        let by_rate = began.elapsed().as_secs_f64();
        let values = [raw.clock, top, used, used / raw.processor, by_rate];
        times.iter_mut().zip(values).for_each(|(times, value)| times.push(value));
    }
    let waited = meanwhile(&crowd)?;
    let (mut looks, before) = (Vec::new(), process::processor(pid)?);
    for _ in 0..LOOKS {
        let began = Instant::now();
        crowd::request(&crowd.limiter, "/v1/top")?;
        looks.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let look_processor = (process::processor(pid)? - before) * 1e3 / f64::from(LOOKS);
    drop(sources);
    crowd.close()?;
    let mut spreads = times.into_iter().map(Spread::of);
    let mut next = || spreads.next().flatten().context("no rounds");
    Ok(Counters {
        tracked,
        raw: next()?,
        top: next()?,
        top_processor: next()?,
        over_raw: next()?,
        by_rate: next()?,
        waited,
        look: Spread::of(looks).context("no looks")?,
        look_processor,
    })
}

/// The least: everything read, and the counters added up.
fn read(sources: &MapData) -> Result<(Raw, u64)> {
    let (began, used, mut sum) = (Instant::now(), raw::processor(), 0_u64);
    let entries = bpf::dump::<4, 4>(sources.fd().as_fd(), |buckets| {
        let packets = buckets.iter().map(|[_, _, passed, dropped]| passed.wrapping_add(*dropped));
        sum = packets.fold(sum, u64::wrapping_add);
    })?;
    let raw = Raw { clock: began.elapsed().as_secs_f64(), processor: raw::processor() - used };
    // Each sent one, so that nothing of this may be left out.
    ensure!(sum >= entries, "{entries} sources have {sum} packets");
    Ok((raw, entries))
}

/// The longest that another request waits while all are read.
fn meanwhile(crowd: &Crowd) -> Result<f64> {
    let mut longest = 0.0_f64;
    thread::scope(|scope| -> Result<()> {
        let reading = scope.spawn(|| crowd.limiter.json(&["sources", "--top", "20"]));
        while !reading.is_finished() {
            let began = Instant::now();
            crowd::request(&crowd.limiter, "/v1/bans")?;
            longest = longest.max(began.elapsed().as_secs_f64() * 1e3);
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(())
    })?;
    Ok(longest)
}
