//! The lists of what is about packets.

use limiter_api::events::{Episode, packet};
use limiter_api::lists::ListName;
use limiter_api::moment::Zone;
use limiter_api::render::{bits, number, seconds};
use limiter_api::sources::{By, SourceRow};
use limiter_api::sources::{folded, part, per_second, percent, state as beside};
use limiter_api::status::history::Rates;
use limiter_api::status::{Interface, InterfaceState};
use limiter_text::plain::clean;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Paragraph, Wrap};

use super::super::orders::column_of;
use super::super::state::{RuleRow, State};
use super::columns::{Column, Sorted, table};
use super::theme::Theme;
use super::wrapped;

pub(super) const fn left(name: &'static str, width: u16, rank: u8) -> Column {
    Column { name, width, rank, right: false }
}

pub(super) const fn right(name: &'static str, width: u16, rank: u8) -> Column {
    Column { name, width, rank, right: true }
}

/// Width of `2001:db8:1234:5678::/64`.
const V6: u16 = 24;

/// Width of `255.255.255.255`.
const V4: u16 = 15;

/// Width of ` in+out`.
const IN_OUT: u16 = 7;

/// Width of a column of sources, with their directions: one of few, so that it seldom changes.
fn source_width(names: impl Iterator<Item = String>) -> u16 {
    let widest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let widths = [V4, V6, V6 + IN_OUT];
    let fits = widths.into_iter().find(|width| widest <= usize::from(*width));
    fits.unwrap_or(V6 + IN_OUT)
}

/// Sources, and in a line the number of those of which no drop was seen.
pub(super) fn sources(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let shown = state.top.sources.len();
    let top = &state.top;
    let folded = folded(state.by, shown, top.lose_nothing, top.dropped_by.lists);
    let folded = folded.filter(|_| !state.filter.is_set());
    // Under the last row, or at the end where the rows do not fit.
    let taken = u16::try_from(shown).unwrap_or(u16::MAX).saturating_add(1);
    let rest = folded.as_ref().map_or(0, |words| wrapped(words, area.width).min(2));
    let [area, below, _] = Layout::vertical([
        Constraint::Length(taken.min(area.height.saturating_sub(rest))),
        Constraint::Length(rest),
        Constraint::Fill(1),
    ])
    .areas(area);
    if let Some(words) = folded {
        let words = Paragraph::new(words).style(theme.quiet()).wrap(Wrap { trim: true });
        frame.render_widget(words, below);
    }
    let rows = &state.top.sources;
    if rows.is_empty() {
        let text = if state.filter.is_set() {
            "no source that stands out passes the filter: Esc takes it away"
        } else if matches!(state.by, By::DropRate | By::Dropped) {
            "no drop of any source was seen so far; try: limiter set ADDRESS 5/min"
        } else {
            "no source stands out so far: a part of them is read at each look"
        };
        frame.render_widget(Paragraph::new(text).style(theme.quiet()), area);
        return;
    }
    let width = source_width(rows.iter().map(SourceRow::name));
    // The share of the burst is of the rule on the source, whatever drops.
    let used = if state.by == By::Utilization { 2 } else { 9 };
    let columns = [
        left("SOURCE", width, 0),
        right("DROPPED/S", 10, 1),
        left("BY", 0, 2),
        left("REASON", 12, 5),
        right("PASSED/S", 9, 3),
        left("SINCE", 11, 6),
        left("STATE", 13, 4),
        right("DROPPED", 12, 7),
        right("PASSED", 13, 8),
        right("USED", 6, used),
    ];
    let sorted = (column_of(state.by), false);
    table(frame, area, (&columns, theme, sorted), (rows, Some(state.cursor)), |row, index| {
        source_cell(row, index, theme)
    });
}

#[expect(clippy::cast_precision_loss, reason = "only to distinguish 0 from more")]
fn source_cell(row: &SourceRow, index: usize, theme: Theme) -> (String, Style) {
    let plain = Style::new();
    match index {
        0 => {
            let dropping = row.dropped_per_second > Some(0.0);
            (row.name(), if dropping { theme.bad() } else { plain })
        }
        1 => {
            let rate = row.dropped_per_second;
            (part(per_second(rate), row.dropped_at_least), theme.count(rate.unwrap_or(0.0)))
        }
        2 => (row.by_text(), plain),
        3 => (row.reason(), plain),
        4 => (part(per_second(row.passed_per_second), row.passed_at_least), plain),
        5 => (row.since(), theme.quiet()),
        6 => {
            let allowed = row.listed == Some(ListName::Allow);
            (beside(row), if allowed { theme.good() } else { theme.bad() })
        }
        7 => (part(number(row.dropped), row.dropped_at_least), theme.count(row.dropped as f64)),
        8 => (part(number(row.passed), row.passed_at_least), plain),
        _ => (percent(row.utilization), theme.used(row.utilization)),
    }
}

pub(super) fn rules(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let columns = [
        left("RULE", 0, 0),
        right("DROPPED/S", 10, 1),
        right("DROPPED BITS", 12, 4),
        right("PASSED/S", 9, 2),
        right("PASSED BITS", 12, 5),
        right("OVER/S", 9, 3),
        right("DROPPED", 13, 6),
        right("PASSED", 13, 7),
        right("OVER", 13, 8),
    ];
    let columns = (&columns[..], theme, sorted(state));
    table(frame, area, columns, (&state.rules, Some(state.cursor)), |row, index| {
        rule_cell(row, index, theme)
    });
}

/// The order of a list other than that of sources.
pub(super) fn sorted(state: &State) -> Sorted {
    let order = state.order();
    (order.column(state.tab), order.ascending)
}

/// Bits a second in a column.
fn bits_of(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), bits)
}

#[expect(clippy::cast_precision_loss, reason = "only to distinguish 0 from more")]
fn rule_cell(row: &RuleRow, index: usize, theme: Theme) -> (String, Style) {
    let ([passed, dropped, over], plain) = (row.counts, Style::new());
    let [passed_rate, dropped_rate, over_rate] = row.rates;
    let [passed_bits, dropped_bits] = row.bits;
    let dropping = theme.count(dropped_rate.unwrap_or(0.0));
    let near = if over > 0 { theme.near() } else { theme.quiet() };
    match index {
        0 => (clean(row.title()), if dropped_rate > Some(0.0) { theme.bad() } else { plain }),
        1 => (per_second(dropped_rate), dropping),
        2 => (bits_of(dropped_bits), dropping),
        3 => (per_second(passed_rate), plain),
        4 => (bits_of(passed_bits), plain),
        5 => (per_second(over_rate), near),
        6 => (number(dropped), theme.count(dropped as f64)),
        7 => (number(passed), plain),
        _ => (number(over), near),
    }
}

pub(super) fn interfaces(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let columns = [
        left("INTERFACE", 14, 0),
        left("STATE", 17, 1),
        right("DROPPED/S", 10, 2),
        right("DROPPED BITS", 12, 4),
        right("PASSED/S", 9, 3),
        right("PASSED BITS", 12, 5),
        left("MODE", 8, 6),
        right("INDEX", 6, 8),
        right("PROGRAM", 8, 7),
        left("", 10, 9),
    ];
    let rows = &state.interfaces;
    let columns = (&columns[..], theme, sorted(state));
    table(frame, area, columns, (rows, Some(state.cursor)), |row: &Interface, index| {
        let plain = Style::new();
        let rate = |of: fn(&Rates) -> f64| row.rates.as_ref().map(of);
        let dropped = rate(|rates| rates.dropped_packets);
        let dropping = theme.count(dropped.unwrap_or(0.0));
        match index {
            0 => (row.labelled(), plain),
            1 if row.state == InterfaceState::Elsewhere => ("another namespace".to_owned(), plain),
            1 if row.state == InterfaceState::Unseen => ("not seen".to_owned(), theme.near()),
            1 if row.attached => ("limited".to_owned(), theme.good()),
            1 => ("no: packets pass".to_owned(), theme.bad()),
            2 => (per_second(dropped), dropping),
            3 => (bits_of(rate(|rates| rates.dropped_bits)), dropping),
            4 => (per_second(rate(|rates| rates.passed_packets)), plain),
            5 => (bits_of(rate(|rates| rates.passed_bits)), plain),
            6 => (clean(&row.mode), plain),
            7 => (row.ifindex.to_string(), theme.quiet()),
            8 => (row.program_id.to_string(), theme.quiet()),
            _ => (if row.adopted { "adopted" } else { "" }.to_owned(), theme.quiet()),
        }
    });
}

/// Episodes of drops, of which the daemon has the latest.
pub(super) fn events(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let rows = &state.events;
    if rows.is_empty() {
        let text = if state.filter.is_set() {
            "no drop that was reported passes the filter: Esc takes it away"
        } else {
            "no drops were reported"
        };
        frame.render_widget(Paragraph::new(text).style(theme.quiet()), area);
        return;
    }
    let zone = Zone::of_this_process();
    let width = source_width(rows.iter().map(Episode::name));
    let columns = [
        left("BEGAN", 19, 1),
        left("SOURCE", width, 0),
        right("LASTED", 12, 3),
        left("NOW", 7, 5),
        right("REPORTED", 9, 6),
        left("REASON", 12, 4),
        left("RULE", 0, 2),
        left("LAST PACKET", 34, 7),
    ];
    let columns = (&columns[..], theme, sorted(state));
    table(frame, area, columns, (rows, Some(state.cursor)), |row: &Episode, index| {
        let style = match (row.ended, row.would_drop) {
            (true, _) => theme.quiet(),
            (false, true) => theme.near(),
            (false, false) => theme.bad(),
        };
        match index {
            0 => (clean(&zone.short(&row.began)), Style::new()),
            1 => (row.name(), style),
            2 => (seconds(row.seconds), Style::new()),
            3 => (if row.ended { "ended" } else { "ongoing" }.to_owned(), style),
            4 => (number(row.sampled), Style::new()),
            5 if row.would_drop => ("would drop".to_owned(), theme.near()),
            5 => (clean(&row.reason), Style::new()),
            6 => (row.title(), Style::new()),
            _ => (clean(&packet(&row.last)), theme.quiet()),
        }
    });
}
