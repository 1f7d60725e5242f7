//! The keys of requests that are refused, in the table of `limiter refused`.

use limiter_api::render;
use limiter_text::plain::clean;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::theme::Theme;
use super::{PAUSE, QUIT, fitting};
use crate::top::refused::Refused;

pub(in crate::top) fn draw(frame: &mut Frame<'_>, view: &Refused) {
    let theme = Theme { plain: view.plain };
    let width = frame.area().width;
    let [head, columns, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let title = format!("refused by limiter serve at {}", view.ask.server);
    let mut parts = vec![(1, vec![Span::styled(clean(&title), Modifier::BOLD)])];
    let alarm = |style: ratatui::style::Style| style.add_modifier(Modifier::REVERSED);
    let when = if view.lost.is_some() {
        let lost = format!(" NO ANSWER since {}: old numbers ", view.answered);
        Span::styled(lost, alarm(theme.bad()))
    } else {
        Span::styled(view.answered.clone(), theme.quiet())
    };
    parts.push((0, vec![when]));
    if view.paused {
        parts.push((0, vec![Span::styled(" PAUSED ", alarm(theme.near()))]));
    }
    frame.render_widget(fitting(parts, "  ", width), head);
    let text = render::text_within(&view.keys, Some(usize::from(width)));
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    frame.render_widget(Line::styled(first, theme.head()), columns);
    frame.render_widget(Paragraph::new(rest).scroll((view.gone, 0)), body);
    let keys = [("arrows", "scroll"), PAUSE, QUIT];
    let key = |(key, what)| (0, vec![Span::styled(key, theme.key()), format!(" {what}").into()]);
    let footer = match &view.lost {
        Some(why) => Line::styled(clean(why), theme.bad()),
        None => fitting(keys.into_iter().map(key).collect(), "   ", width),
    };
    frame.render_widget(footer, foot);
}
