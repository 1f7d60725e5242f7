//! Random rule sets of iptables and nft in a namespace, and their translation, before the same
//! packets: limiter lets pass what they let pass.
//!
//! A rule that is not translated stays in the firewall, so what limiter drops must never be what
//! passes there. Where every limit was translated, both decide alike on each packet.
//! `LIMITER_RULE_SETS_SEED` begins with another set, `LIMITER_RULE_SETS` says how many.

mod bed;
mod conditions;
mod random;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use limiter_import::{Format, Imported, Options, Outcome, import};
use limiter_rules::RuleFile;
use limiter_tests::packet::MAX_FRAME;
use limiter_tests::root::require_root;

use bed::{Bed, Kind};
use conditions::{Family, Language};
use random::rule_set;

/// Loads that each set gets.
const LOADS: usize = 8;

fn number(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}: give a number")),
        Err(_) => Ok(default),
    }
}

#[derive(Debug, Default)]
struct Sum {
    sets: u64,
    translated: usize,
    refused: usize,
    packets: usize,
    packets_v6: usize,
    /// Packets that both sides drop by a limit.
    limited: usize,
}

/// Reasons that say that a rule limits nothing: it drops all, or no packet comes to it.
const NO_LIMIT: [&str; 4] =
    ["whatever the rate", "no chain with a hook", "no packet meets", "no packet comes as far"];

/// True if some limit of the text is left out of the translation.
fn lacks(imported: &Imported) -> bool {
    imported.rules.iter().any(|rule| {
        let reason = rule.reason.as_deref().unwrap_or_default();
        let is_limit = !NO_LIMIT.iter().any(|known| reason.contains(known));
        rule.outcome == Outcome::NotTranslated && is_limit
    })
}

/// True if packets of one kind may change what becomes of another kind there, and not here, as
/// the letters say: what another rule drops is charged here (H), what one limit drops is charged to
/// those before (O), lists are shared (N), and so is a bucket of two ports (R).
fn mixes(imported: &Imported) -> bool {
    let output = imported.rules.iter().flat_map(|rule| &rule.differences);
    let mut output = output.filter(|one| {
        let letter = ["H: ", "O: ", "R: "].iter().any(|letter| one.starts_with(letter));
        letter || one.contains("its list is shared")
    });
    output.next().is_none()
}

/// True if packets take the way through the machine, or to it, for which the limits are: letter G.
/// Of several kinds each has to show its way.
fn goes_the_way(imported: &Imported, judged: &[bed::Judged], kinds: usize) -> bool {
    (0..kinds).all(|kind| {
        let mut passed = judged.iter().filter(|one| one.kind == kind && one.there);
        let Some(one) = passed.next() else { return kinds == 1 };
        let mut limits = imported.rules.iter().filter(|rule| !rule.paths.is_empty());
        limits.all(|rule| rule.forwarded == one.through)
    })
}

fn try_one(seed: u64, sum: &mut Sum) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let language = if seed % 3 == 2 { Language::Nft } else { Language::Iptables };
    let family = if random.u8(..3) == 0 { Family::V6 } else { Family::V4 };
    let (text, small) = rule_set(&mut random, language, family);
    let mut bed = Bed::create("sets")?;
    bed.load(language, family, &text)?;
    let saved = bed.saved(language, family)?;
    let format = match (language, family) {
        (Language::Iptables, Family::V4) => Format::Iptables,
        (Language::Iptables, Family::V6) => Format::Ip6tables,
        (Language::Nft, _) => Format::Nft,
    };
    let options = Options { format: Some(format), ..Options::default() };
    let imported = import(saved.as_bytes(), &options)?;
    let file = RuleFile::parse("imported.yaml", imported.text.as_bytes(), MAX_FRAME)?;
    let (lacks, mixes) = (lacks(&imported), mixes(&imported));
    sum.sets += 1;
    sum.translated += imported.translated;
    sum.refused += imported.count(Outcome::NotTranslated);
    for _ in 0..LOADS {
        // Chains of nft are for both families.
        let both = language == Language::Nft && random.u8(..4) == 0;
        let family_of = if both { family.other() } else { family };
        let source = (family_of, Kind::source(&mut random, family_of));
        let kinds = if mixes && !lacks { random.usize(1..4) } else { 1 };
        let kinds: Vec<Kind> =
            (0..kinds).map(|_| Kind::random(&mut random, source, small)).collect();
        bed.load(language, family, &text)?;
        let judged = bed.judge(&file.rules, &kinds)?;
        sum.packets += judged.len();
        sum.packets_v6 += if family_of == Family::V6 { judged.len() } else { 0 };
        if !goes_the_way(&imported, &judged, kinds.len()) {
            continue;
        }
        for (index, kind) in kinds.iter().enumerate() {
            let own: Vec<_> = judged.iter().filter(|one| one.kind == index).collect();
            // Other rules there drop all of it at any rate, and stay.
            if own.iter().all(|one| !one.there) {
                continue;
            }
            sum.limited += own.iter().filter(|one| !one.there && !one.here).count();
            let wrong = |one: &&&bed::Judged| {
                if lacks { one.there && !one.here } else { one.there != one.here }
            };
            let wrong = own.iter().filter(wrong).count();
            let passed = |here: bool| {
                own.iter().filter(|one| if here { one.here } else { one.there }).count()
            };
            ensure!(
                wrong == 0,
                "LIMITER_RULE_SETS_SEED={seed}: of {} packets there {} pass, here {}: \
                 {kind:?} among {} kinds\n{saved}\n{}",
                own.len(),
                passed(false),
                passed(true),
                kinds.len(),
                imported.text
            );
        }
    }
    Ok(())
}

fn try_all(first: u64, sets: u64) -> Result<()> {
    require_root();
    let first = number("LIMITER_RULE_SETS_SEED", first)?;
    let sets = number("LIMITER_RULE_SETS", sets)?;
    let mut sum = Sum::default();
    for seed in first..first + sets {
        try_one(seed, &mut sum)?;
    }
    println!("{sum:?}");
    // A translation that refuses everything is right as well, and says nothing.
    let enough = sum.translated as u64 > sets / 2
        && sum.limited as u64 > sets
        && sum.packets_v6 * 6 > sum.packets;
    ensure!(enough || sets < 10, "{sum:?}");
    Ok(())
}

#[test]
fn some_rule_sets_pass_what_they_pass_there() -> Result<()> {
    try_all(1, 12)
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn many_rule_sets_pass_what_they_pass_there() -> Result<()> {
    try_all(1000, 300)
}
