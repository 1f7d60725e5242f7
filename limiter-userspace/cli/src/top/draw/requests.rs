//! The list of rules for requests.

use limiter_api::render::number;
use limiter_api::requests::RequestRates;
use limiter_api::sources::per_second;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::super::state::{RequestRow, Serving, State};
use super::columns::table;
use super::lists::{left, right, sorted};
use super::theme::Theme;

/// Processes about which there is a line, at most.
const LINES: usize = 4;

/// A line about each process, and the rules of all of them.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    if state.serving.is_empty() {
        let text = "no `limiter serve` reports any more";
        frame.render_widget(Paragraph::new(text).style(theme.quiet()), area);
        return;
    }
    let line = |Serving { words, silent }: &Serving| {
        Line::styled(words.clone(), if *silent { theme.near() } else { theme.quiet() })
    };
    // Those whose numbers are old have to be seen.
    let (old, new): (Vec<_>, Vec<_>) = state.serving.iter().partition(|at| at.silent);
    let lines: Vec<Line<'_>> = old.into_iter().chain(new).take(LINES).map(line).collect();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height / 2);
    let [head, area] =
        Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(lines), head);
    let columns = [
        left("RULE", 0, 0),
        right("REFUSED/S", 10, 1),
        right("PASSED/S", 9, 2),
        right("OVER/S", 9, 3),
        right("REFUSED", 13, 5),
        right("PASSED", 13, 6),
        right("OVER", 13, 7),
        right("PROCESS", 8, 4),
    ];
    // With one process, its line needs no name.
    let columns = match &columns {
        [shown @ .., _] if state.serving.len() == 1 => &shown[..],
        all => &all[..],
    };
    let columns = (columns, theme, sorted(state));
    table(frame, area, columns, (&state.requests, Some(state.cursor)), |row, index| {
        cell(row, index, theme)
    });
}

#[expect(clippy::cast_precision_loss, reason = "only to distinguish 0 from more")]
fn cell(row: &RequestRow, index: usize, theme: Theme) -> (String, Style) {
    let RequestRow { pid, silent, at } = row;
    let rate = |of: fn(&RequestRates) -> f64| at.rates.as_ref().map(of);
    let refused = rate(|rates| rates.refused);
    let (counts, over) = (at.counts, at.counts.passed_over());
    let near = if over > 0 { theme.near() } else { theme.quiet() };
    let plain = Style::new();
    let (text, style) = match index {
        0 => (at.title(), if refused > Some(0.0) { theme.bad() } else { plain }),
        1 => (per_second(refused), theme.count(refused.unwrap_or(0.0))),
        2 => (per_second(rate(|rates| rates.passed)), plain),
        3 => (per_second(rate(|rates| rates.over)), near),
        4 => (number(counts.refused()), theme.count(counts.refused() as f64)),
        5 => (number(counts.passed()), plain),
        6 => (number(over), near),
        _ => (pid.to_string(), theme.quiet()),
    };
    (text, if *silent { theme.quiet() } else { style })
}
