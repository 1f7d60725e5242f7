//! Every input of the committed corpora, and a bounded number of random changes of them, through
//! the same functions as the long runs. `LIMITER_FUZZ_SEED` begins with another sequence,
//! `LIMITER_FUZZ_ROUNDS` says how many changes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where its machinery does")]

use std::fs;
use std::panic::{catch_unwind, resume_unwind};

use fastrand::Rng;
use limiter_fuzz_targets::corpus::{self, Entry};
use limiter_fuzz_targets::{Target, decision, mutate, seeds};

/// Changes of each target's corpus, unless asked otherwise.
const ROUNDS: [(Target, u64); 4] = [
    (Target::Packet, 50_000),
    (Target::Rules, 1_500),
    (Target::Decision, 750),
    (Target::Import, 1_500),
];

const SEED: u64 = 1;

/// Size of all committed corpora together, in bytes, at most.
const MOST: u64 = 300_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}: give a number")))
}

/// The corpus, and what it began with.
fn entries(target: Target) -> Vec<Entry> {
    let mut entries = corpus::read(target).unwrap();
    assert!(entries.len() > 20, "{} inputs in the corpus of {}", entries.len(), target.name());
    entries.extend(seeds::of(target).unwrap());
    entries
}

/// Runs one input; a panic is reported with everything that repeats it.
fn check(target: Target, input: &[u8], origin: &str) {
    if let Err(panic) = catch_unwind(|| target.check(input)) {
        eprintln!("target {}, {origin}: the input is {input:02x?}", target.name());
        resume_unwind(panic);
    }
}

#[test]
fn the_corpora_are_small() {
    let files = Target::ALL.map(|target| fs::metadata(corpus::file(target)).unwrap().len());
    let bytes: u64 = files.into_iter().sum();
    println!("{bytes} bytes");
    assert!(bytes <= MOST, "{bytes} bytes");
}

#[test]
fn every_input_of_the_corpora_keeps_the_promises() {
    for target in Target::ALL {
        let entries = entries(target);
        for entry in &entries {
            check(target, &entry.bytes, &entry.name);
        }
        println!("{}: {} inputs", target.name(), entries.len());
    }
}

#[test]
fn random_changes_keep_the_promises() {
    let seed = number("LIMITER_FUZZ_SEED").unwrap_or(SEED);
    for (target, rounds) in ROUNDS {
        let rounds = number("LIMITER_FUZZ_ROUNDS").unwrap_or(rounds);
        let entries = entries(target);
        for round in 0..rounds {
            // One generator a round, so that a failure is repeated without those before it.
            let mut random = Rng::with_seed(seed.wrapping_add(round));
            let mut input = entries[random.usize(..entries.len())].bytes.clone();
            match target {
                Target::Packet => mutate::frame(&mut input, &mut random),
                Target::Rules | Target::Decision | Target::Import => {
                    let other = &entries[random.usize(..entries.len())].bytes;
                    mutate::bytes(&mut input, other, &mut random);
                }
            }
            check(target, &input, &format!("LIMITER_FUZZ_SEED={} round 0", seed + round));
        }
        println!("{}: {rounds} changes, seed {seed}", target.name());
    }
}

#[test]
fn every_rule_set_of_the_stories_can_be_put_in_force() {
    for index in 0..decision::COUNT {
        decision::check(&[u8::try_from(index).unwrap()]);
    }
}
