//! The report of the measurement.

use std::fmt::Write as _;

use limiter_tests::sandbox::format::thousands;

use super::run::Results;
use crate::spread::Spread;

pub(super) fn markdown(results: &Results) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut page, results);
    page
}

#[expect(clippy::too_many_lines, reason = "one page, from its top to its end")]
fn write(page: &mut String, results: &Results) -> std::fmt::Result {
    let rounds = results.rounds;
    writeln!(
        page,
        "Seconds, the median of up to {rounds} rounds, with lowest and highest in brackets. *To \
         active* is `limiter apply`, \
         from its start to its end: it reads the file, sends it, and waits until the rules are in \
         force; each time every \
         limit is another one. *Processor* is the processor time of daemon and command line for \
         that. *Raw* is the same \
         number of limits and prefixes written into the kernel's maps in batches, by the same \
         clock, in the same \
         round.\n"
    )?;
    writeln!(
        page,
        "| limits | as | to active | processor | raw | over raw | diff | list | export |"
    )?;
    writeln!(page, "|--:|---|--:|--:|--:|--:|--:|--:|--:|")?;
    for set in &results.sets {
        let [diff, list, export] = set.others.as_ref().map_or_else(
            || ["–", "–", "–"].map(str::to_owned),
            |others| [others.diff, others.list, others.export].map(|took| spread(took, 2)),
        );
        writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {diff} | {list} | {export} |",
            thousands(set.limits.into()),
            set.shape.name(),
            spread(set.apply, 2),
            spread(set.processor, 2),
            spread(set.raw, 2),
            spread(set.over_raw, 1),
        )?;
    }
    writeln!(
        page,
        "\nA million limits are not possible: `--max-rules` ends at 524,288, and those in force \
         and those that take their \
         place need room at the same time. Of rules that are written one by one about 180,000 fit \
         into the 16 MiB of a \
         rule file.\n"
    )?;
    writeln!(page, "| under traffic | |\n|---|--:|")?;
    for started in &results.started {
        let rules = match started.rules {
            1 => "a rule".to_owned(),
            rules => format!("{} rules", thousands(rules.into())),
        };
        writeln!(
            page,
            "| start of the daemon with {rules}, to the first packet that is limited, s | {} |",
            spread(started.limited, 2)
        )?;
        writeln!(
            page,
            "| the same, to the word that it is ready, s | {} |",
            spread(started.ready, 2)
        )?;
    }
    let applied = &results.applied;
    writeln!(
        page,
        "| {} rules put in force amid {} packets, s | {} |",
        thousands(results.sets.first().map_or(0, |set| set.limits).into()),
        thousands(applied.packets),
        spread(applied.seconds, 2)
    )?;
    writeln!(
        page,
        "| the longest without a packet judged meanwhile, ms | {} |",
        spread(applied.gap, 1)
    )?;
    writeln!(
        page,
        "| the same while no rules were put in force, ms | {} |",
        spread(applied.quiet, 1)
    )?;
    writeln!(
        page,
        "\nEach packet that was sent meanwhile was judged. That none is judged by half a rule set \
         is what the tests \
         `concurrency` hold.\n"
    )?;
    let counters = &results.counters;
    writeln!(page, "| {} tracked sources | |\n|---|--:|", thousands(counters.tracked))?;
    for (what, text) in [
        ("all read from the map in batches (raw), s", spread(counters.raw, 2)),
        ("`limiter sources --by dropped --top 20`, s", spread(counters.top, 2)),
        ("the daemon's processor time for that, s", spread(counters.top_processor, 2)),
        ("the same, over that of the raw reading", spread(counters.over_raw, 1)),
        (
            "`limiter sources --by rate --top 20`, with the quarter of a second between its two \
             readings, s",
            spread(counters.by_rate, 2),
        ),
        (
            "the longest that another request waited meanwhile, ms",
            format!("{:.1}", counters.waited),
        ),
        ("a refresh of `limiter top`, ms", spread(counters.look, 1)),
        (
            "the daemon's processor time for a refresh, ms",
            format!("{:.1}", counters.look_processor),
        ),
    ] {
        writeln!(page, "| {what} | {text} |")?;
    }
    Ok(())
}

fn spread(Spread { median, low, high }: Spread, digits: usize) -> String {
    format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
}
