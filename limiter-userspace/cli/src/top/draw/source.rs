//! The page of one source.

use limiter_api::lists::ListName;
use limiter_api::render::{number, seconds};
use limiter_api::sources::SourceRow;
use limiter_api::sources::source::SourceView;
use limiter_api::sources::source::{other_rules, question, rule_text, totals};
use limiter_text::plain::clean;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::super::state::State;
use super::history::Bands;
use super::theme::Theme;

/// Least height, in lines, at which histories take more than one.
const TALL: u16 = 22;

/// Cells of the bar that shows the bucket.
const BAR: usize = 30;

/// Rules whose drops are named.
const RULES: usize = 6;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, name: &str, theme: Theme) {
    let tall = if area.height >= TALL { 7 } else { 3 };
    let [title, bands, facts] =
        Layout::vertical([Constraint::Length(2), Constraint::Length(tall), Constraint::Fill(1)])
            .areas(area);
    let heading = Line::styled(clean(name), Modifier::BOLD);
    frame.render_widget(Paragraph::new(vec![Line::default(), heading]), title);
    let [passed, dropped] = &state.of_source;
    Bands { passed, dropped, bits: None, marks: Vec::new() }.draw(frame, bands, theme);
    let mut lines = vec![Line::default()];
    match (&state.view, state.top.watched.as_slice()) {
        (Some(view), rows @ [row, ..]) => {
            lines.extend(drops(rows, theme));
            if let Some(([passed, dropped], at)) = &state.left {
                let (passed, dropped) = (number(*passed), number(*dropped));
                let words = format!(
                    "its counters left the tables at {at}: until then {passed} packets had passed \
                     and {dropped} were dropped"
                );
                lines.push(Line::styled(words, theme.near()));
            }
            describe(&mut lines, view, row, theme);
        }
        _ => lines.push(Line::styled("the daemon is asked", theme.quiet())),
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), facts);
}

/// What drops packets of the source now, a line for each direction.
fn drops(rows: &[SourceRow], theme: Theme) -> Vec<Line<'static>> {
    let losing: Vec<_> = rows.iter().filter(|row| row.loses()).collect();
    if losing.is_empty() && rows.iter().any(|row| row.dropped_at_least) {
        return vec![Line::styled("no drop of it is seen now", theme.quiet())];
    }
    if losing.is_empty() {
        return vec![Line::styled("nothing of it is dropped", theme.good())];
    }
    losing.into_iter().map(|row| Line::styled(row.in_words(), theme.bad())).collect()
}

fn describe(lines: &mut Vec<Line<'static>>, view: &SourceView, row: &SourceRow, theme: Theme) {
    let mut fact = |name: &str, value: Vec<Span<'static>>| {
        let mut line = vec![Span::styled(format!("{name:<10}"), theme.quiet())];
        line.extend(value);
        lines.push(Line::from(line));
    };
    let text = |text: String| vec![Span::raw(text)];
    match view.listed {
        Some(ListName::Deny) => {
            fact("list", vec![Span::styled("denied: every packet is dropped", theme.bad())]);
        }
        Some(ListName::Allow) => {
            fact("list", vec![Span::styled("allowed: every packet passes", theme.good())]);
        }
        None => fact("list", text("on none".to_owned())),
    }
    match row.banned_seconds {
        Some(left) => {
            let by = view.banned_by.as_deref().map(|by| format!(", by {}", clean(by)));
            let text = format!("banned for {} more{}", seconds(left), by.unwrap_or_default());
            fact("ban", vec![Span::styled(text, theme.bad())]);
        }
        None => fact("ban", text("none".to_owned())),
    }
    let shadow = if view.shadow { ", in shadow mode: it would drop, and only counts" } else { "" };
    fact("rule", text(clean(&rule_text(view)) + shadow));
    for (number, limit) in view.limits.iter().enumerate() {
        let name = if number == 0 { "limit" } else { "and" };
        fact(name, text(clean(&limit.text)));
    }
    if let Some(action) = view.action.as_deref().filter(|action| *action != "drop") {
        fact("over it", text(clean(action)));
    }
    if let (Some(burst), Some(remaining)) = (view.of, view.remaining) {
        let count = clean(view.count.as_deref().unwrap_or("packets"));
        // Of one reading: the row may be of another.
        let used = burst.saturating_sub(remaining);
        let share = share(used, burst);
        let (full, empty) = bar(share);
        let used = number(used);
        fact(
            "bucket",
            vec![
                Span::styled(full, theme.used(Some(share))),
                Span::styled(empty, theme.quiet()),
                format!(" {used} of {} {count} used", number(burst)).into(),
            ],
        );
        if view.full_in_ns > 0 {
            let full = seconds(view.full_in_ns.div_ceil(1_000_000_000));
            fact("", text(format!("all of it is there again in {full}")));
        }
    }
    if let (Some(here), Some(left)) = (view.here, view.remaining_here) {
        let count = clean(view.count.as_deref().unwrap_or("packets"));
        fact("over nodes", text(format!("{} {count} {}", number(left), here.words())));
    }
    let [passed, dropped] = totals(view);
    fact("in all", text(format!("{passed} passed, {dropped} dropped")));
    let drops = view.by_rule.iter().filter(|by| by.dropped > 0).take(RULES);
    for (index, by) in drops.enumerate() {
        let of = by.of.as_deref().map_or_else(String::new, |of| format!(", of all in {of}"));
        let sample = if by.exact { "" } else { " at least" };
        let name = if index == 0 { "dropped" } else { "" };
        let line =
            format!("{sample} {} by {} ({}){}", number(by.dropped), by.title(), by.reason, of);
        fact(name, text(clean(line.trim_start())));
    }
    if view.martian {
        fact("martian", text("no host can have it: every packet is dropped".to_owned()));
    }
    if let Some(rules) = other_rules(view) {
        fact("others", text(rules));
        fact("", text(question(view)));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share is drawn with 30 cells")]
fn share(used: u64, of: u64) -> f64 {
    used as f64 / of.max(1) as f64
}

/// The used part of a bar, and the rest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share is from 0 to 1"
)]
fn bar(share: f64) -> (String, String) {
    let full = ((share.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
    ("█".repeat(full), "░".repeat(BAR - full))
}
