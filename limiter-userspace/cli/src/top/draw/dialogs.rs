//! Dialogs above the rest.

use limiter_text::plain::clean;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::super::line::Line as Typed;
use super::super::state::{Dialog, Prompt, State};
use super::theme::Theme;

const HELP: [(&str, &str); 18] = [
    ("arrows, j, k", "choose a row; PgUp, PgDn, g, G"),
    ("Tab, 1 to 5", "sources, events, rules, interfaces, requests"),
    ("s, S", "sort by the next column, or the one before"),
    ("o", "turn the order round, but of sources"),
    ("/", "only sources in a prefix"),
    ("f", "only what is of a rule: a part of its name or keys"),
    ("Esc", "take the filters away"),
    ("p, space", "pause, and go on"),
    ("Enter", "of a rule its sources; else one source, and there:"),
    ("  b", "deny it for a time: on the deny list"),
    ("  a", "allow it for a time: on the allow list"),
    ("  d", "deny it for good"),
    ("  l", "another limit for it"),
    ("  u", "off its list, or its bans, or its limit"),
    ("  Esc", "back"),
    ("q, Ctrl-C", "quit"),
    ("", "USED is the share of the burst that is in use"),
    ("", "OVER passed over a limit: in shadow mode, or marked"),
];

pub(super) fn draw(frame: &mut Frame<'_>, dialog: &Dialog, state: &State, theme: Theme) {
    let (title, lines) = match dialog {
        Dialog::Help => (" keys ", help(theme)),
        Dialog::Confirm { question, .. } => (
            " sure? ",
            vec![
                Line::raw(clean(question)),
                Line::default(),
                keys(&[("y", "yes"), ("n", "no")], theme),
            ],
        ),
        Dialog::Input { prompt, line, wrong } => {
            (title(*prompt), input(*prompt, line, wrong.as_deref(), state, theme))
        }
    };
    let longest = lines.iter().map(Line::width).max().unwrap_or(0);
    let width = u16::try_from(longest).unwrap_or(u16::MAX).saturating_add(4).min(72);
    // Long lines are wrapped: that takes a line more for each.
    let inner = usize::from(width.min(frame.area().width).saturating_sub(4)).max(1);
    let height = lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum::<usize>();
    let height = u16::try_from(height).unwrap_or(u16::MAX).saturating_add(2);
    let area = centred(frame.area(), width, height);
    frame.render_widget(Clear, area);
    let block = Block::bordered()
        .title(title)
        .border_style(theme.key())
        .padding(ratatui::widgets::Padding::horizontal(1));
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false }).block(block);
    frame.render_widget(paragraph, area);
}

fn help(theme: Theme) -> Vec<Line<'static>> {
    HELP.iter()
        .map(|(key, what)| {
            Line::from(vec![Span::styled(format!("{key:<14}"), theme.key()), (*what).into()])
        })
        .collect()
}

const fn title(prompt: Prompt) -> &'static str {
    match prompt {
        Prompt::Deny => " deny list ",
        Prompt::Allow => " allow list ",
        Prompt::Limit => " limit ",
        Prompt::Prefix => " prefix ",
        Prompt::Rule => " rule ",
    }
}

fn input(
    prompt: Prompt,
    line: &Typed,
    wrong: Option<&str>,
    state: &State,
    theme: Theme,
) -> Vec<Line<'static>> {
    let source = clean(state.source.as_deref().unwrap_or_default());
    let question = match prompt {
        Prompt::Deny => format!("Deny {source}, so that all of it is dropped, for"),
        Prompt::Allow => format!("Allow {source}, so that all of it passes, for"),
        Prompt::Limit => format!("Limit {source} to, as in 100/s or 10mbit/s"),
        Prompt::Prefix => "Only sources in, as in 192.0.2.0/24; empty for all".to_owned(),
        Prompt::Rule => "Only of rules with this in their name or keys; empty for all".to_owned(),
    };
    let mut typed = vec![Span::styled("> ", theme.key())];
    if line.is_chosen() {
        typed.push(Span::styled(clean(&line.text()), Modifier::BOLD | Modifier::REVERSED));
    } else {
        let (before, at, behind) = line.parts();
        let at = at.map_or_else(|| " ".to_owned(), String::from);
        typed.push(Span::styled(clean(&before), Modifier::BOLD));
        typed.push(Span::styled(clean(&at), Modifier::BOLD | Modifier::REVERSED));
        typed.push(Span::styled(clean(&behind), Modifier::BOLD));
    }
    let mut lines = vec![Line::raw(question), Line::from(typed)];
    match wrong {
        Some(wrong) => lines.push(Line::styled(clean(wrong), theme.bad())),
        None => lines.push(Line::default()),
    }
    lines.push(keys(&[("Enter", "do it"), ("Esc", "leave it")], theme));
    lines
}

fn keys(keys: &[(&'static str, &'static str)], theme: Theme) -> Line<'static> {
    let mut line = Vec::new();
    for (key, what) in keys {
        line.push(Span::styled(*key, theme.key()));
        line.push(Span::raw(format!(" {what}   ")));
    }
    Line::from(line)
}

/// A rectangle in the middle, as large as there is room.
fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect {
        x: area.x.saturating_add(area.width.saturating_sub(width) / 2),
        y: area.y.saturating_add(area.height.saturating_sub(height) / 2),
        width,
        height,
    }
}
