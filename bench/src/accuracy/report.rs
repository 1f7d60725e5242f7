//! The report of the measurement.

use std::fmt::Write as _;

use limiter_tests::accuracy::range::Multiple;
use limiter_tests::accuracy::simulated;
use limiter_tests::sandbox::format::{error_percent, percent, thousands};

use super::contender::Tool;
use super::real::{Cell, Row};
use super::run::{PROMISE, Results, Simulated};

/// The whole report.
pub fn markdown(results: &Results) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut page, results);
    page
}

fn write(page: &mut String, results: &Results) -> std::fmt::Result {
    if results.quick {
        writeln!(page, "A quick look (`--quick`): few loads, short measurements.\n")?;
    }
    page.push_str(INTRODUCTION);
    writeln!(page, "{}", results.machine.markdown())?;
    virtual_time(page, results)?;
    real_packets(page, results)?;
    details(page, results)?;
    Ok(())
}

const INTRODUCTION: &str = "\
Made by `cargo xtask accuracy`, in one run on one machine.

### Machine

";

const VIRTUAL: &str = "
The XDP program in the kernel, run by `BPF_PROG_TEST_RUN` with the clock as a parameter. Frames are
evenly spaced in virtual time at a multiple of the limit, from a source of its own for each load;
above the limit the bucket starts empty, so that the steady state is measured and not the burst. The
figures are delivered / configured. The error is against the smaller of offered and configured. The
burst is ten frames (at least one full frame).

*Rounding* is what limiter knows beforehand: a frame's time is counted in whole ticks of 1/32 ns,
rounded up, so that a limit is never exceeded. *Dropped at 1x* is what a source at exactly the
configured rate lost of its frames; it is more than nothing only where the rounding is, and only \
once
the burst is used up.

With a burst of a single packet a token bucket is even spacing: whatever comes early is dropped, and
1,001/s under 1,000/s is thinned out to 500/s. A burst of two packets is enough to hold every rate.

";

fn virtual_time(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(page, "### limiter, the whole range, in virtual time")?;
    page.push_str(VIRTUAL);
    write!(page, "| limit | frame |")?;
    for multiple in Multiple::ALL {
        write!(page, " {multiple} |")?;
    }
    writeln!(page, " worst error | rounding | dropped at 1x |")?;
    writeln!(page, "|---|--:|{}--:|--:|--:|", "--:|".repeat(Multiple::ALL.len()))?;
    for row in &results.simulated {
        simulated_row(page, row)?;
    }
    let worst = results.simulated.iter().map(|row| row.worst().abs()).fold(0.0, f64::max);
    let held = if worst <= PROMISE { "held" } else { "BROKEN" };
    writeln!(page, "\nWorst of all: {worst:.3} %. Promised: {PROMISE} %: {held}.\n")
}

fn simulated_row(page: &mut String, row: &Simulated) -> std::fmt::Result {
    let entry = &row.entry;
    write!(page, "| {} | {} B |", entry.text, entry.frame)?;
    let configured = simulated::configured(entry);
    for (_, steady) in &row.loads {
        write!(page, " {:.4} |", steady.rate / configured)?;
    }
    let at_limit = row.loads.iter().find(|(multiple, _)| multiple.factor().total_cmp(&1.0).is_eq());
    let dropped = at_limit.map_or_else(String::new, |(_, steady)| {
        format!("{} of {}", thousands(steady.dropped), thousands(steady.offered))
    });
    let rounding = row.rounding * 100.0;
    writeln!(page, " {:+.3} % | {rounding:.3} % | {dropped} |", row.worst())
}

const REAL: &str = "
One source at a time, UDP over a veth pair between two network namespaces, numbered frames sent one
by one with a busy wait, and counted by a UDP socket behind the rule. limiter is the daemon as it is
shipped, in native XDP mode; the others have their rule in the INPUT chain. The same generator and
the same socket for all. Above the limit the bucket is emptied first, and the first tenth of each
measurement is left out.

A cell is what was delivered, in frames a second, and in brackets the difference from what an exact
token bucket (the crate `governor`, with the same rate and burst) delivers of the same frames, sent
at the same times: where the machine stalled the generator and a small burst ran over, the exact
bucket lost the same. What was really offered is in the last table; it is at least 90 % of the \
load. A dash was not measured; the reason is below. Byte limits count what the tool
counts: limiter the whole frame, the others the IP packet, 14 bytes less. Only rates are compared
here; the byte buckets of the others hold more than the burst that they are reported (nft adds one
second's worth, hashlimit doubles it), so three times the burst is sent to empty them.

";

fn real_packets(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(page, "### Real packets, limiter and its peers")?;
    page.push_str(REAL);
    let mut multiples: Vec<Multiple> = Vec::new();
    for cell in results.real.iter().flat_map(|row| &row.cells) {
        if !multiples.contains(&cell.multiple) {
            multiples.push(cell.multiple);
        }
    }
    multiples.sort_unstable();
    write!(page, "| | limit | frames/s |")?;
    for multiple in &multiples {
        write!(page, " {multiple} |")?;
    }
    writeln!(page, " worst |\n|---|---|--:|{}--:|", "--:|".repeat(multiples.len()))?;
    for row in &results.real {
        let contender = &row.contender;
        let configured = contender.frames_per_second();
        let (name, limit) = (contender.tool.name(), contender.limit());
        write!(page, "| {name} | {limit} | {} |", frames(configured))?;
        for multiple in &multiples {
            match row.cells.iter().find(|cell| cell.multiple == *multiple) {
                Some(cell) => write!(page, " {} ({}) |", frames(cell.rate()), error(cell))?,
                None => write!(page, " – |")?,
            }
        }
        writeln!(page, " {} |", row.worst().map_or_else(|| "–".to_owned(), error))?;
    }
    page.push('\n');
    listed(page, &results.real)?;
    missing(page, results)
}

/// Frames a second, with a decimal only where it says something.
fn frames(rate: f64) -> String {
    if rate < 100.0 {
        return format!("{rate:.1}");
    }
    let whole = format!("{rate:.0}");
    whole.parse().map_or(whole, thousands)
}

fn error(cell: &Cell) -> String {
    let error = error_percent(cell.delivered, cell.exact);
    // One frame more or less is the phase, not the rate.
    if error.abs() < PROMISE || cell.delivered.abs_diff(cell.exact) <= 1 {
        percent(error)
    } else {
        format!("{error:+.1} %")
    }
}

const LISTED: &str =
    "The rules of the peers, as their tools list them once they are installed. A rate \
that is listed otherwise than it was written is what the tool really holds:

| limit as written | rule as listed |
|---|---|
";

fn listed(page: &mut String, rows: &[Row]) -> std::fmt::Result {
    page.push_str(LISTED);
    for row in rows.iter().filter(|row| row.contender.tool != Tool::Limiter) {
        let limit = row.contender.limit();
        writeln!(page, "| {}, {limit} | `{}` |", row.contender.tool.name(), row.listed)?;
    }
    page.push('\n');
    Ok(())
}

fn missing(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(page, "Not measured:\n")?;
    for tool in Tool::ALL.iter().filter(|tool| !results.machine.has(tool.program())) {
        writeln!(
            page,
            "- {}: the machine has no `{}`.",
            tool.name(),
            tool.program().unwrap_or("")
        )?;
    }
    for row in &results.real {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for (multiple, why) in &row.missing {
            match reasons.last_mut() {
                Some((last, multiples)) if last == why => multiples.push(multiple.to_string()),
                _ => reasons.push((why, vec![multiple.to_string()])),
            }
        }
        for (why, multiples) in reasons {
            let (name, limit) = (row.contender.tool.name(), row.contender.limit());
            writeln!(page, "- {name}, {limit}: {}: {why}.", multiples.join(", "))?;
        }
    }
    if results.quick {
        writeln!(page, "- All other loads: left out by `--quick`.")?;
    }
    page.push_str(
        "- Limits above what one CPU sends, and below what passes in seconds: virtual time only, \
         and limiter only.\n\n",
    );
    Ok(())
}

fn details(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(page, "### All counts of the real packets\n")?;
    writeln!(page, "| | limit | load | seconds | sent | offered/s | delivered | exact | error |")?;
    writeln!(page, "|---|---|--:|--:|--:|--:|--:|--:|--:|")?;
    for row in &results.real {
        let (name, limit) = (row.contender.tool.name(), row.contender.limit());
        for cell in &row.cells {
            writeln!(
                page,
                "| {name} | {limit} | {} | {:.3} | {} | {} | {} | {} | {} |",
                cell.multiple,
                cell.seconds,
                thousands(cell.sent),
                frames(cell.offered()),
                thousands(cell.delivered),
                thousands(cell.exact),
                percent(cell.error()),
            )?;
        }
    }
    Ok(())
}
