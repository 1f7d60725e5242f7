//! What limiter says of a device, and what its limit lets through.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Carried, Load};
use crate::limiter::Limiter;

/// Datagrams that the tests' quotas let pass.
pub const QUOTA: u64 = 10;

/// The longest until a device is limited or refused: the program for another kind of frames may
/// have to be loaded.
const SEEN_WITHIN: Duration = Duration::from_mins(4);

/// What gets through of a load each way, if so much passes in one direction.
pub fn wanted(is_out: bool, passes: u64, load: &Load) -> Carried {
    let of = |direction| if direction == is_out { passes } else { load.datagrams };
    Carried { into: Some(of(false)), out: Some(of(true)) }
}

/// What `status` has of an interface, or nothing while the daemon has no time to answer: it may be
/// loading the program for another kind of frames, which takes minutes where it is emulated.
fn reported(limiter: &Limiter, name: &str) -> Result<Vec<Value>> {
    let Ok(status) = limiter.json(&["status"]) else { return Ok(Vec::new()) };
    let all = status["interfaces"].as_array().context("no interfaces")?;
    Ok(all.iter().filter(|at| at["name"] == name).cloned().collect())
}

/// Waits until limiter limits a device or refuses to: how is the inner error, as a table has it.
///
/// # Errors
///
/// When it does neither.
pub fn is_limited(limiter: &Limiter, name: &str) -> Result<Result<(), String>> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let found = reported(limiter, name)?;
        if let Some(error) = found.iter().find_map(|at| at["error"].as_str()) {
            return Ok(Err(refused(error)?));
        }
        if !found.is_empty() && found.iter().all(|at| at["attached"] == true) {
            return Ok(Ok(()));
        }
        ensure!(Instant::now() < deadline, "neither limited nor refused: {}", limiter.said());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until limiter has nothing of an interface any more.
///
/// # Errors
///
/// When it still has.
pub fn wait_until_forgotten(limiter: &Limiter, name: &str) -> Result<()> {
    let deadline = Instant::now() + SEEN_WITHIN;
    while !reported(limiter, name)?.is_empty() {
        ensure!(Instant::now() < deadline, "{name} is still there: {}", limiter.said());
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The cell of a refusal: `refused` for the usual words of the kernel, or with other ones.
fn refused(error: &str) -> Result<String> {
    if error.contains("frames limiter cannot read") {
        return Ok("refused by limiter".to_owned());
    }
    // `... (Operation not supported (os error 95)): ...`
    let Some((before, _)) = error.split_once(" (os error ") else { bail!("{error}") };
    let words = before.rsplit(['(', ':']).next().context("no words")?.trim();
    Ok(match words {
        "Operation not supported" => "refused".to_owned(),
        other => format!("refused: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_than_the_usual_ones_are_in_the_cell() {
        let said =
            "dev0 takes no native XDP (Operation not supported (os error 95)): allow the slower";
        assert_eq!(refused(said).unwrap(), "refused");
        let plain = refused("attaching to dev0: Invalid argument (os error 22)").unwrap();
        assert_eq!(plain, "refused: Invalid argument");
        assert_eq!(refused("it has frames limiter cannot read").unwrap(), "refused by limiter");
        refused("something else").unwrap_err();
    }
}
