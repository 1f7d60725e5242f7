//! A rate over time, as a line.

use limiter_daemon::api::sources::per_second;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline};

use super::super::state::History;
use super::theme::Theme;

/// Columns before a history.
const LABEL: u16 = 20;

/// A label, a number and how it came about.
pub(super) fn history(
    frame: &mut Frame<'_>,
    area: Rect,
    (label, style): (&'static str, ratatui::style::Style),
    history: &History,
    theme: Theme,
) {
    let [text, line] =
        Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(area);
    let rate = format!("{:>9}/s ", per_second(history.now));
    let label = Line::from(vec![Span::styled(format!("{label:<7} "), theme.quiet()), rate.into()]);
    frame.render_widget(Paragraph::new(label), text);
    let points = history.points(usize::from(line.width));
    let sparkline =
        Sparkline::default().data(points).direction(RenderDirection::RightToLeft).style(style);
    frame.render_widget(sparkline, line);
}
