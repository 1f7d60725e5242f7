//! Keys of the view, and their effects.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use limiter_api::arguments::length;
use limiter_rules::{RateText, source_text};

use super::filter::Filter;
use super::line::Line;
use super::link::{Action, Link};
use super::state::{Dialog, Prompt, State, Tab};

/// The step after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Nothing more.
    Go,
    /// Something has to be shown that was not requested yet.
    Refresh,
    Quit,
}

/// The answer where there are no rules for requests to be seen.
const NONE_SERVES: &str = "no `limiter serve` reports to this daemon: start it as root or as the \
                           daemon's user, with its --socket";

/// Rows that a page has, more or less.
const PAGE: usize = 15;

pub(super) fn press(state: &mut State, key: KeyEvent, link: &dyn Link) -> Flow {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    // In raw mode the terminal makes no signal of it.
    if control && key.code == KeyCode::Char('c') {
        return Flow::Quit;
    }
    if control && !matches!(state.dialog, Some(Dialog::Input { .. })) {
        return Flow::Go;
    }
    state.message = None;
    match state.dialog.take() {
        Some(dialog) => in_dialog(state, dialog, key, link),
        None => match to_tab(state, key.code) {
            Some(flow) => flow,
            None if state.source.is_some() => in_source(state, key.code),
            None => in_list(state, key.code),
        },
    }
}

/// Opens the tab that a key names; `None` if it names none.
fn to_tab(state: &mut State, key: KeyCode) -> Option<Flow> {
    let tab = match key {
        KeyCode::Tab => state.beside(false),
        KeyCode::BackTab => state.beside(true),
        KeyCode::Char('1') => Tab::Sources,
        KeyCode::Char('2') => Tab::Events,
        KeyCode::Char('3') => Tab::Rules,
        KeyCode::Char('4') => Tab::Interfaces,
        KeyCode::Char('5') if !state.has(Tab::Requests) => {
            state.say(NONE_SERVES, true);
            return Some(Flow::Go);
        }
        KeyCode::Char('5') => Tab::Requests,
        _ => return None,
    };
    state.show(None);
    Some(open(state, tab))
}

fn in_list(state: &mut State, key: KeyCode) -> Flow {
    match key {
        KeyCode::Char('q') => return Flow::Quit,
        KeyCode::Char('?') => state.dialog = Some(Dialog::Help),
        KeyCode::Down | KeyCode::Char('j') => state.choose(state.cursor.saturating_add(1)),
        KeyCode::Up | KeyCode::Char('k') => state.choose(state.cursor.saturating_sub(1)),
        KeyCode::PageDown => state.choose(state.cursor.saturating_add(PAGE)),
        KeyCode::PageUp => state.choose(state.cursor.saturating_sub(PAGE)),
        KeyCode::Home | KeyCode::Char('g') => state.choose(0),
        KeyCode::End | KeyCode::Char('G') => state.choose(usize::MAX),
        KeyCode::Char('s') => return sort(state, false),
        KeyCode::Char('S') => return sort(state, true),
        KeyCode::Char('o') => state.turn_round(),
        KeyCode::Char('p' | ' ') => return pause(state),
        KeyCode::Char('/') => {
            state.dialog = Some(input(Prompt::Prefix, state.filter.within.as_deref()));
        }
        KeyCode::Char('f') => {
            state.dialog = Some(input(Prompt::Rule, state.filter.rule.as_deref()));
        }
        KeyCode::Esc if state.filter.is_set() => {
            state.filter = Filter::default();
            return Flow::Refresh;
        }
        KeyCode::Enter if state.tab == Tab::Rules => {
            // The sources of that rule.
            if let Some(rule) = state.rules.get(state.cursor).map(|row| row.title().to_owned()) {
                state.filter.rule = Some(rule);
                return open(state, Tab::Sources);
            }
        }
        KeyCode::Enter => {
            if let Some(source) = state.source_of_row() {
                state.show(Some(source));
                return Flow::Refresh;
            }
        }
        _ => {}
    }
    Flow::Go
}

/// Sorts by another column. The daemon sorts sources.
fn sort(state: &mut State, back: bool) -> Flow {
    state.turn_order(back);
    if state.tab == Tab::Sources { Flow::Refresh } else { Flow::Go }
}

/// Stops asking, or goes on.
fn pause(state: &mut State) -> Flow {
    state.paused = !state.paused;
    if state.paused { Flow::Go } else { Flow::Refresh }
}

/// A dialog to type a line, which begins as `text`.
fn input(prompt: Prompt, text: Option<&str>) -> Dialog {
    let line = Line::of(text.unwrap_or_default());
    Dialog::Input { prompt, line, wrong: None }
}

fn open(state: &mut State, tab: Tab) -> Flow {
    state.open(tab);
    Flow::Refresh
}

fn in_source(state: &mut State, key: KeyCode) -> Flow {
    let Some(source) = state.source.clone() else { return Flow::Go };
    match key {
        KeyCode::Char('q') => return Flow::Quit,
        KeyCode::Char('?') => state.dialog = Some(Dialog::Help),
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left | KeyCode::Enter => {
            state.show(None);
            return Flow::Refresh;
        }
        KeyCode::Char('p' | ' ') => return pause(state),
        KeyCode::Char('b') => state.dialog = Some(input(Prompt::Deny, Some("10m"))),
        KeyCode::Char('a') => state.dialog = Some(input(Prompt::Allow, Some("10m"))),
        KeyCode::Char('l') => {
            let limit = state.view.as_ref().and_then(|view| view.limit.clone());
            state.dialog = Some(input(Prompt::Limit, limit.as_deref().or(Some("100/s"))));
        }
        KeyCode::Char('d') => {
            let question =
                format!("Drop everything from {source}, until it is taken off the list?");
            let action = Action::Deny { source, seconds: None };
            state.dialog = Some(Dialog::Confirm { action, question });
        }
        KeyCode::Char('u') => match state.undo() {
            Some((action, question)) => state.dialog = Some(Dialog::Confirm { action, question }),
            None => state.say(
                format!(
                    "{source} is on no list, not banned, and has no limit of its own: nothing to \
                     undo"
                ),
                true,
            ),
        },
        _ => {}
    }
    Flow::Go
}

fn in_dialog(state: &mut State, dialog: Dialog, key: KeyEvent, link: &dyn Link) -> Flow {
    match (dialog, key.code) {
        (Dialog::Help, _)
        | (_, KeyCode::Esc)
        | (Dialog::Confirm { .. }, KeyCode::Char('n' | 'N' | 'q')) => Flow::Go,
        (Dialog::Confirm { action, .. }, KeyCode::Char('y' | 'Y')) => act(state, &action, link),
        (Dialog::Input { prompt, line, .. }, KeyCode::Enter) => enter(state, prompt, line, link),
        (Dialog::Input { prompt, mut line, wrong }, _) => {
            let before = line.text();
            line.press(key);
            let wrong = wrong.filter(|_| line.text() == before);
            state.dialog = Some(Dialog::Input { prompt, line, wrong });
            Flow::Go
        }
        (dialog, _) => {
            state.dialog = Some(dialog);
            Flow::Go
        }
    }
}

/// Takes what was typed, or says what is wrong with it.
fn enter(state: &mut State, prompt: Prompt, typed: Line, link: &dyn Link) -> Flow {
    let text = typed.text();
    let trimmed = text.trim();
    if prompt == Prompt::Rule {
        state.filter.rule = (!trimmed.is_empty()).then(|| trimmed.to_owned());
        state.choose(0);
        return Flow::Refresh;
    }
    if prompt == Prompt::Prefix {
        if trimmed.is_empty() {
            state.filter.within = None;
            return Flow::Refresh;
        }
        return match source_text::parse(trimmed) {
            Ok(selector) => {
                state.filter.within = Some(selector.to_string());
                state.choose(0);
                Flow::Refresh
            }
            Err(error) => again(state, prompt, typed, error.to_string()),
        };
    }
    let Some(source) = state.source.clone() else { return Flow::Go };
    let action = match prompt {
        Prompt::Limit => RateText::parse(trimmed)
            .map(|_| Action::Limit { source, rate: trimmed.to_owned() })
            .map_err(|error| error.to_string()),
        Prompt::Deny | Prompt::Allow | Prompt::Prefix | Prompt::Rule => {
            seconds(trimmed).map(|seconds| {
                if prompt == Prompt::Allow {
                    Action::Allow { source, seconds }
                } else {
                    Action::Deny { source, seconds: Some(seconds) }
                }
            })
        }
    };
    match action {
        Ok(action) => act(state, &action, link),
        Err(wrong) => again(state, prompt, typed, wrong),
    }
}

/// Opens the line again as it was typed, to be corrected.
fn again(state: &mut State, prompt: Prompt, mut line: Line, wrong: String) -> Flow {
    line.settle();
    state.dialog = Some(Dialog::Input { prompt, line, wrong: Some(wrong) });
    Flow::Go
}

fn seconds(text: &str) -> Result<u64, String> {
    match length(text)?.as_secs() {
        0 => Err("give at least 1s".to_owned()),
        seconds => Ok(seconds),
    }
}

fn act(state: &mut State, action: &Action, link: &dyn Link) -> Flow {
    match link.act(action) {
        Ok(done) => state.say(done, false),
        Err(error) => state.say(error.to_string(), true),
    }
    Flow::Refresh
}
