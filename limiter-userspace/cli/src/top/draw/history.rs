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

/// What passed and what was dropped, on one scale, so that they compare.
pub(super) fn histories(
    frame: &mut Frame<'_>,
    [passed, dropped]: [Rect; 2],
    [of_passed, of_dropped]: [&History; 2],
    theme: Theme,
) {
    let shown = |history: &History| history.points(usize::from(passed.width.saturating_sub(LABEL)));
    let both = [of_passed, of_dropped].map(shown);
    let most = both.iter().flatten().flatten().copied().max().unwrap_or_default();
    history(frame, passed, ("passed", theme.good()), of_passed, most, theme);
    history(frame, dropped, ("dropped", theme.bad()), of_dropped, most, theme);
}

/// A label, a number and how it came about; `most` is the top of the scale.
fn history(
    frame: &mut Frame<'_>,
    area: Rect,
    (label, style): (&'static str, ratatui::style::Style),
    history: &History,
    most: u64,
    theme: Theme,
) {
    let [text, line] =
        Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(area);
    let rate = format!("{:>9}/s ", per_second(history.now));
    let label = Line::from(vec![Span::styled(format!("{label:<7} "), theme.quiet()), rate.into()]);
    frame.render_widget(Paragraph::new(label), text);
    let points = history.points(usize::from(line.width));
    let sparkline = Sparkline::default()
        .data(points)
        .max(most.max(1))
        .direction(RenderDirection::RightToLeft)
        .style(style);
    frame.render_widget(sparkline, line);
}
