//! The report of the measurement.

use std::fmt::Write as _;

use limiter_tests::sandbox::format::thousands;

use super::contender::Tool;
use super::effort::Rate;
use super::run::Results;
use super::scene::Sample;
use super::traffic::{Class, LIMIT};
use crate::spread::Spread;

/// Below this share, in percent, conforming sources count as disturbed.
const DISTURBED: f64 = 90.0;

/// The whole report.
pub fn markdown(results: &Results) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut page, results);
    page
}

fn write(page: &mut String, results: &Results) -> std::fmt::Result {
    if results.quick {
        writeln!(page, "A quick look (`--quick`): few rates, short, once.\n")?;
    }
    page.push_str(FIGURE);
    let (machine, load) = (results.machine.markdown(), &results.load);
    writeln!(page, "{machine}| load average before | {load} |\n\n### Measured\n")?;
    method(page, results)?;
    disturbed(page, results)?;
    known(page, results)?;
    flood(page, results)?;
    rules(page, results)
}

const FIGURE: &str = "\
Made by `cargo xtask floods`, in one run on one machine.

### Machine

";

fn method(page: &mut String, results: &Results) -> std::fmt::Result {
    let rounds = results.ladders.iter().filter(|ladder| ladder.tool == Tool::Nothing).count();
    let (entries, limit) = (thousands(results.entries.into()), thousands(LIMIT.into()));
    let step = results.step.as_secs();
    let sizes: Vec<String> = Class::ALL
        .iter()
        .map(|class| {
            let (count, each) = class.size();
            format!("{count} at {}/s", thousands(each.into()))
        })
        .collect();
    let [slow, medium, fast, new, new_slow] = sizes.as_slice() else { return Ok(()) };
    writeln!(
        page,
        "Real packets over a veth pair between two network namespaces, 60 bytes, UDP. Every table \
         has room \
         for {entries} sources, and every source may send {limit} packets a second. Known before \
         the flood: \
         {slow}, {medium}, {fast}. New in every step of the flood, which takes {step} seconds: \
         {new}, \
         {new_slow}, each in a /24 of its own. The flood \
         is over every table's room before the first step, and goes on from step to step, never \
         with a \
         source twice, unless it says *each source 2 times* or so: a tenth of a second apart. \
         *Arrived* and *passed* is what reached the INPUT hook, behind all rules; \
         there it is \
         counted by an nft rule and ends, so what a service would have to do with a flood that \
         passes is not \
         in the figure. One CPU sends, the other receives (the interface's NAPI thread); both \
         ends share a \
         queue of 256 frames, as a card's ring. What finds it full is lost before any rule, \
         whoever sent it: \
         *no room in the queue*. The median of {rounds} rounds, with lowest and highest in \
         brackets where \
         they differ.\n"
    )
}

/// The first flood under which known sources lose more than a tenth.
fn disturbed(page: &mut String, results: &Results) -> std::fmt::Result {
    for tool in results.tools() {
        let share =
            |rate: Rate| results.spread(tool, rate, |sample| sample.arrived_share(&Class::KNOWN));
        let bad = |rate: Rate| share(rate).is_some_and(|share| share.median * 100.0 < DISTURBED);
        let name = tool.name();
        match results.rates.iter().find(|rate| bad(**rate)) {
            Some(rate) => {
                let arrived = percent(share(*rate));
                let offered = offered(results, tool, *rate);
                writeln!(
                    page,
                    "- {name}: known sources lose more than a tenth from a flood of {offered}/s \
                     on: \
                     {arrived} arrive."
                )?;
            }
            None => writeln!(page, "- {name}: known sources never lose more than a tenth here.")?,
        }
    }
    page.push('\n');
    Ok(())
}

fn known(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(page, "### Of the conforming packets arrived\n")?;
    write!(page, "| | flood/s |")?;
    for class in Class::ALL {
        write!(page, " {} |", class.name())?;
    }
    writeln!(page, " no room in the queue |\n|---|--:|{}--:|", "--:|".repeat(Class::ALL.len()))?;
    for tool in results.tools() {
        for rate in results.rates {
            let (offered, again) = (offered(results, tool, *rate), again(*rate));
            write!(page, "| {} | {offered}{again} |", tool.name())?;
            for class in Class::ALL {
                let share = |sample: &Sample| sample.arrived_share(&[class]);
                write!(page, " {} |", percent(results.spread(tool, *rate, share)))?;
            }
            writeln!(page, " {} |", percent(results.spread(tool, *rate, Sample::lost_share)))?;
        }
    }
    page.push('\n');
    Ok(())
}

fn flood(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(page, "### Of the flood passed\n")?;
    write!(page, "| asked for, packets/s |")?;
    for tool in results.tools() {
        write!(page, " {} |", tool.name())?;
    }
    let columns = results.tools().count();
    writeln!(page, "\n|--:|{}", "--:|".repeat(columns))?;
    for rate in results.rates.iter().filter(|rate| **rate != Rate::None) {
        match rate {
            Rate::PerSecond(per_second) | Rate::Again(per_second, _) => {
                write!(page, "| {}{} |", thousands((*per_second).into()), again(*rate))?;
            }
            Rate::None | Rate::Fastest => write!(page, "| as fast as possible |")?,
        }
        for tool in results.tools() {
            let share = percent(results.spread(tool, *rate, Sample::passed_share));
            let passed = results.spread(tool, *rate, |sample| Some(sample.passed()));
            let passed = passed.map_or_else(String::new, |passed| whole(passed.median));
            write!(page, " {share}, {passed}/s |")?;
        }
        page.push('\n');
    }
    page.push('\n');
    Ok(())
}

fn rules(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(page, "### The rules\n")?;
    for tool in results.tools().filter(|tool| *tool != Tool::Nothing) {
        if let Some(ladder) = results.ladders.iter().find(|ladder| ladder.tool == tool) {
            writeln!(page, "- {}: `{}`", tool.name(), ladder.listed)?;
        }
    }
    Ok(())
}

/// How often each source sends, if more than once.
fn again(rate: Rate) -> String {
    match rate {
        Rate::Again(_, times) => format!(", each source {times} times"),
        Rate::None | Rate::PerSecond(_) | Rate::Fastest => String::new(),
    }
}

fn offered(results: &Results, tool: Tool, rate: Rate) -> String {
    let spread = results.spread(tool, rate, |sample| Some(sample.offered()));
    spread.map_or_else(|| "–".to_owned(), |spread| whole(spread.median))
}

fn whole(number: f64) -> String {
    let whole = format!("{number:.0}");
    whole.parse().map_or(whole, thousands)
}

/// `100 %`, or `97.2 % (91.0 to 98.3)`.
fn percent(share: Option<Spread>) -> String {
    let Some(Spread { median, low, high }) = share else { return "–".to_owned() };
    let text = |share: f64| match share * 100.0 {
        // Only what is all or nothing is written so.
        percent if percent >= 100.0 => "100".to_owned(),
        percent if percent > 99.99 => "99.99".to_owned(),
        percent if percent > 99.0 => format!("{percent:.2}"),
        percent if percent <= 0.0 => "0".to_owned(),
        percent if percent < 0.01 => "0.01".to_owned(),
        percent if percent < 1.0 => format!("{percent:.2}"),
        percent => format!("{percent:.1}"),
    };
    let (low, high) = (text(low), text(high));
    if low == high { format!("{low} %") } else { format!("{} % ({low} to {high})", text(median)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_is_100_percent() {
        let percent = |values: &[f64]| percent(Spread::of(values.iter().copied()));
        assert_eq!(percent(&[1.0]), "100 %");
        assert_eq!(percent(&[0.999_999]), "99.99 %");
        assert_eq!(percent(&[0.5, 0.6, 1.0]), "60.0 % (50.0 to 100)");
        assert_eq!(percent(&[0.000_001]), "0.01 %");
        assert_eq!(percent(&[]), "–");
    }
}
