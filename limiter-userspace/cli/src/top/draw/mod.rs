//! The view of a [`State`]. Texts of the daemon are cleaned here: nothing that steers a terminal
//! gets there.

mod columns;
mod dialogs;
mod history;
mod lists;
#[cfg(feature = "requests")]
pub(super) mod refused;
mod requests;
mod source;
mod theme;

use limiter_api::render::{number, seconds};
use limiter_api::sources::By;
use limiter_text::plain::clean;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::past::Totals;
use super::state::{State, Tab};
use history::Bands;
use theme::Theme;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, plain: bool) {
    let theme = Theme { plain };
    let width = frame.area().width;
    let headline = headline(state, theme, width);
    let note = u16::try_from(headline.len()).unwrap_or(u16::MAX);
    let footer = footer(state, theme, width);
    let foot = wrapped(&footer.to_string(), width).min(3);
    let [head, note, charts, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(note),
        Constraint::Length(history::lines(frame.area().height)),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(foot),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header(state, theme, width)), head);
    let Totals { passed, dropped, bits, marks, .. } = &state.totals;
    let marks = marks.iter().copied().collect();
    Bands { passed, dropped, bits: Some(*bits), marks }.draw(frame, charts, theme);
    frame.render_widget(Paragraph::new(self::tabs(state, theme)), tabs);
    frame.render_widget(Paragraph::new(headline), note);
    match (&state.source, state.tab) {
        (Some(name), _) => source::draw(frame, body, state, name, theme),
        (None, Tab::Sources) => lists::sources(frame, body, state, theme),
        (None, Tab::Rules) => lists::rules(frame, body, state, theme),
        (None, Tab::Interfaces) => lists::interfaces(frame, body, state, theme),
        (None, Tab::Events) => lists::events(frame, body, state, theme),
        (None, Tab::Requests) => requests::draw(frame, body, state, theme),
    }
    frame.render_widget(Paragraph::new(footer).wrap(Wrap { trim: true }), foot);
    if let Some(dialog) = &state.dialog {
        dialogs::draw(frame, dialog, state, theme);
    }
}

/// What is dropped now, in a sentence.
fn headline(state: &State, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let Some(words) = &state.top.headline else {
        return vec![Line::styled("measuring: rates take two looks", theme.quiet())];
    };
    let drops = state.totals.dropped.now > Some(0.0);
    let style = if drops { theme.bad() } else { theme.good() };
    let words = clean(words);
    // Its parts stay whole where that takes no more lines.
    let (parts, wrapped) = (broken(&words, ", ", width), broken(&words, " ", width));
    let lines = if parts.len() > 2 { wrapped } else { parts };
    let line = |words: String| Line::styled(words, style.add_modifier(Modifier::BOLD));
    lines.into_iter().take(2).map(line).collect()
}

/// Lines that words take in so many columns.
fn wrapped(words: &str, width: u16) -> u16 {
    u16::try_from(broken(words, " ", width).len()).unwrap_or(u16::MAX)
}

/// The lines of a text that is broken after a gap wherever the next part has no room; a part that
/// is too long for a line has one to itself.
fn broken(text: &str, gap: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(gap) {
        let wide = |line: &str| line.trim_end().chars().count();
        match lines.last_mut() {
            Some(line) if wide(&format!("{line}{part}")) <= usize::from(width) => {
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A part of a line: how early it is left out where there is little room, and what it says.
type Part = (usize, Vec<Span<'static>>);

/// A line of the parts that fit, those with the lowest ranks, with a gap between them.
fn fitting(mut parts: Vec<Part>, gap: &'static str, width: u16) -> Line<'static> {
    let wide = |parts: &[Part]| {
        let spans = parts.iter().flat_map(|(_, spans)| spans).map(Span::width).sum::<usize>();
        spans + gap.len() * parts.len().saturating_sub(1)
    };
    while parts.len() > 1 && wide(&parts) > usize::from(width) {
        let rank = parts.iter().map(|(rank, _)| *rank).max();
        parts.retain(|(of, _)| Some(*of) != rank);
    }
    let mut line = Vec::new();
    for (_, spans) in parts {
        if !line.is_empty() {
            line.push(Span::raw(gap));
        }
        line.extend(spans);
    }
    Line::from(line)
}

fn header(state: &State, theme: Theme, width: u16) -> Line<'static> {
    let top = &state.top;
    let version = state.status.as_ref().map_or_else(String::new, |status| clean(&status.version));
    let alarm = theme.bad().add_modifier(Modifier::REVERSED);
    let limits = if top.bypass {
        let goes_on = state.status.as_ref().is_some_and(|status| status.then.is_some());
        let words = if goes_on {
            "limits OFF: limiter lets every packet pass"
        } else {
            "limits OFF: every packet passes"
        };
        Span::styled(words, alarm)
    } else {
        Span::styled("limits on", theme.good())
    };
    let mut line = vec![
        (5, vec![Span::styled(format!("limiter {version}"), Modifier::BOLD)]),
        (0, vec![limits]),
        (4, vec![format!("up {}", seconds(top.uptime_seconds)).into()]),
        (6, vec![format!("generation {}", top.generation).into()]),
    ];
    if let Some(since) = state.answered.as_ref().filter(|_| state.lost.is_some()) {
        // Only that limits are off is worth the place then.
        line.retain(|(rank, _)| *rank > 0 || top.bypass);
        let lost = format!(" NO ANSWER since {since}: old numbers ");
        line.insert(1, (0, vec![Span::styled(lost, alarm)]));
    }
    if state.paused {
        let paused = Span::styled(" PAUSED ", theme.near().add_modifier(Modifier::REVERSED));
        line.push((1, vec![paused]));
    }
    if let Some(trial) = state.status.as_ref().and_then(|status| status.trial) {
        let left = seconds(trial.seconds_left);
        line.push((2, vec![Span::styled(format!("on trial: {left} left"), theme.near())]));
    }
    let (v4, v6) = (number(top.tracked_v4), number(top.tracked_v6));
    line.push((3, vec![Span::styled(format!("{v4} IPv4, {v6} IPv6 sources"), theme.quiet())]));
    fitting(line, "  ", width)
}

/// Name of the order of sources.
const fn order(by: By) -> &'static str {
    match by {
        By::Dropped => "drops in all",
        By::Passed => "passed in all",
        By::Rate => "packets a second",
        By::DropRate => "drops a second",
        By::Utilization => "share of the burst that is used",
    }
}

fn tabs(state: &State, theme: Theme) -> Line<'static> {
    let mut line = Vec::new();
    for (number, tab) in Tab::ALL.into_iter().enumerate().filter(|(_, tab)| state.has(*tab)) {
        let style = if tab == state.tab {
            theme.key().add_modifier(Modifier::REVERSED)
        } else {
            theme.quiet()
        };
        line.push(Span::styled(format!(" {}:{} ", number + 1, tab.name()), style));
    }
    if state.tab == Tab::Sources {
        line.push(Span::raw(format!("  by {}", order(state.by))));
    }
    if let Some(within) = &state.filter.within {
        line.push(Span::styled(format!("  in {}", clean(within)), theme.near()));
    }
    if let Some(rule) = &state.filter.rule {
        line.push(Span::styled(format!("  rule {}", clean(rule)), theme.near()));
    }
    Line::from(line)
}

/// Keys that several lists have.
const SORT: (&str, &str) = ("s", "sort");
const RULE: (&str, &str) = ("f", "rule");
const PAUSE: (&str, &str) = ("p", "pause");
const HELP: (&str, &str) = ("?", "help");
const QUIT: (&str, &str) = ("q", "quit");

fn footer(state: &State, theme: Theme, width: u16) -> Line<'static> {
    if let Some(lost) = &state.lost {
        return Line::styled(clean(&lost.to_string()), theme.bad());
    }
    if let Some(message) = &state.message {
        let style = if message.bad { theme.bad() } else { theme.good() };
        return Line::styled(clean(&message.text), style);
    }
    let keys: &[(&str, &str)] = match (&state.source, state.tab) {
        (Some(_), _) => &[
            ("b", "deny for a time"),
            ("a", "allow"),
            ("d", "deny"),
            ("l", "limit"),
            ("u", "undo"),
            ("Esc", "back"),
            HELP,
            QUIT,
        ],
        (None, Tab::Rules) => &[("Enter", "its sources"), SORT, RULE, PAUSE, HELP, QUIT],
        (None, Tab::Requests) => &[SORT, ("o", "turn"), RULE, PAUSE, HELP, QUIT],
        (None, Tab::Interfaces) => &[SORT, ("o", "turn"), PAUSE, HELP, QUIT],
        (None, Tab::Sources | Tab::Events) => {
            &[("Enter", "source"), SORT, ("/", "prefix"), RULE, PAUSE, HELP, QUIT]
        }
    };
    let part = |(place, key): (usize, &(&'static str, &str))| {
        let rank = if [HELP, QUIT].contains(key) { 0 } else { place + 1 };
        let (key, what) = *key;
        (rank, vec![Span::styled(key, theme.key()), Span::raw(format!(" {what}"))])
    };
    fitting(keys.iter().enumerate().map(part).collect(), "   ", width)
}
