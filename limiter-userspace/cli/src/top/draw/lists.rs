//! The three lists.

use limiter_daemon::api::lists::ListName;
use limiter_daemon::api::sources::{OtherDrops, SourceRow};
use limiter_daemon::api::sources::{part, per_second, percent, state as beside};
use limiter_daemon::api::status::{Interface, InterfaceState};
use limiter_daemon::render::{number, titled};
use limiter_text::plain::clean;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::Paragraph;

use super::super::state::{RuleRow, State};
use super::columns::{Column, table};
use super::theme::Theme;

const fn left(name: &'static str, width: u16, rank: u8) -> Column {
    Column { name, width, rank, right: false }
}

const fn right(name: &'static str, width: u16, rank: u8) -> Column {
    Column { name, width, rank, right: true }
}

/// Width of `2001:db8:1234:5678::/64`.
const V6: u16 = 24;

/// Width of `255.255.255.255`.
const V4: u16 = 15;

/// Rows of drops by other rules that are shown, and the lines around them.
const OTHERS: usize = 6;

/// Sources, and below them what other rules than their own drop of them.
pub(super) fn sources(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let others = state.top.by_other_rules.get(..OTHERS).unwrap_or(&state.top.by_other_rules);
    let lines = if others.is_empty() { 0 } else { others.len() + 2 };
    let lines = u16::try_from(lines).unwrap_or(0).min(area.height / 2);
    let [area, below] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(lines)]).areas(area);
    if lines > 0 {
        self::others(frame, below, others, theme);
    }
    let rows = &state.top.sources;
    if rows.is_empty() {
        let text = "no source stands out so far: a part of them is read at each look";
        frame.render_widget(Paragraph::new(text).style(theme.quiet()), area);
        return;
    }
    let width = if rows.iter().any(|row| row.source.len() > usize::from(V4)) { V6 } else { V4 };
    let columns = [
        left("SOURCE", width, 0),
        right("DROPPED/S", 9, 1),
        right("DROPPED", 13, 5),
        right("PASSED/S", 9, 2),
        right("PASSED", 13, 6),
        right("USED", 6, 3),
        left("STATE", 13, 4),
        left("LIMIT", 14, 7),
        left("RULE", 0, 8),
    ];
    table(frame, area, (&columns, theme), (rows, Some(state.cursor)), |row, index| {
        source_cell(row, index, theme)
    });
}

/// Drops by other rules, under an empty line.
fn others(frame: &mut Frame<'_>, area: Rect, rows: &[OtherDrops], theme: Theme) {
    let [_, area] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let columns = [
        left("SOURCE", V6, 0),
        right("DROPPED", 9, 1),
        left("REASON", 16, 3),
        left("DROPPED BY OTHER RULES", 0, 2),
    ];
    table(frame, area, (&columns, theme), (rows, None), |row: &OtherDrops, index| match index {
        0 => (clean(&row.source), Style::new()),
        1 => (part(number(row.drops.dropped), !row.drops.exact), theme.bad()),
        2 => (row.drops.reason.clone(), Style::new()),
        _ => (row.drops.title(), theme.quiet()),
    });
}

#[expect(clippy::cast_precision_loss, reason = "only to tell 0 from more")]
fn source_cell(row: &SourceRow, index: usize, theme: Theme) -> (String, Style) {
    let plain = Style::new();
    match index {
        0 => (clean(&row.source), plain),
        1 => {
            let rate = row.dropped_per_second;
            (part(per_second(rate), row.dropped_at_least), theme.count(rate.unwrap_or(0.0)))
        }
        2 => (part(number(row.dropped), row.dropped_at_least), theme.count(row.dropped as f64)),
        3 => (part(per_second(row.passed_per_second), row.passed_at_least), plain),
        4 => (part(number(row.passed), row.passed_at_least), plain),
        5 => (percent(row.nearness), theme.used(row.nearness)),
        6 => {
            let allowed = row.listed == Some(ListName::Allow);
            (beside(row), if allowed { theme.good() } else { theme.bad() })
        }
        7 => (clean(row.limit.as_deref().unwrap_or("-")), plain),
        _ => (clean(&titled(row.rule.as_deref(), row.rule_name.as_deref())), theme.quiet()),
    }
}

pub(super) fn rules(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let columns = [
        left("RULE", 0, 0),
        right("DROPPED/S", 9, 1),
        right("DROPPED", 13, 4),
        right("PASSED/S", 9, 2),
        right("PASSED", 13, 5),
        right("OVER/S", 9, 3),
        right("OVER", 13, 6),
    ];
    table(frame, area, (&columns, theme), (&state.rules, Some(state.cursor)), |row, index| {
        rule_cell(row, index, theme)
    });
}

#[expect(clippy::cast_precision_loss, reason = "only to tell 0 from more")]
fn rule_cell(row: &RuleRow, index: usize, theme: Theme) -> (String, Style) {
    let ([passed, dropped, over], plain) = (row.counts, Style::new());
    let [passed_rate, dropped_rate, over_rate] = row.rates;
    match index {
        0 => (clean(row.name.as_deref().unwrap_or(&row.rule)), plain),
        1 => (per_second(dropped_rate), theme.count(dropped_rate.unwrap_or(0.0))),
        2 => (number(dropped), theme.count(dropped as f64)),
        3 => (per_second(passed_rate), plain),
        4 => (number(passed), plain),
        5 => (per_second(over_rate), if over > 0 { theme.near() } else { theme.quiet() }),
        _ => (number(over), if over > 0 { theme.near() } else { theme.quiet() }),
    }
}

pub(super) fn interfaces(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let columns = [
        left("INTERFACE", 16, 0),
        left("MODE", 8, 2),
        left("ATTACHED", 22, 1),
        right("INDEX", 6, 4),
        right("PROGRAM", 8, 3),
        left("", 10, 5),
    ];
    let rows = state.status.as_ref().map_or(&[][..], |status| &status.interfaces);
    table(frame, area, (&columns, theme), (rows, Some(state.cursor)), |row: &Interface, index| {
        let plain = Style::new();
        match index {
            0 => (clean(&row.name), plain),
            1 => (clean(&row.mode), plain),
            2 if row.state == InterfaceState::Elsewhere => {
                ("in another namespace".to_owned(), plain)
            }
            2 if row.state == InterfaceState::Unseen => ("not seen".to_owned(), theme.near()),
            2 if row.attached => ("yes".to_owned(), theme.good()),
            2 => ("no: packets pass".to_owned(), theme.bad()),
            3 => (row.ifindex.to_string(), plain),
            4 => (row.program_id.to_string(), plain),
            _ => (if row.adopted { "adopted" } else { "" }.to_owned(), theme.quiet()),
        }
    });
}
