//! `limiter top --requests`: the keys that a `limiter serve` refuses most.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use limiter_api::moment::Zone;
use limiter_api::refused::RefusedKeys;
use limiter_api::render;
use limiter_requests::Listen;
use ratatui::Frame;

use super::keys::Flow;
use super::{Look, View, draw, live};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::output::{Output, columns};
use crate::questions::refused::{Ask, ask};

/// All that the view knows and shows.
pub(super) struct Refused {
    pub(super) ask: Ask,
    pub(super) keys: RefusedKeys,
    /// The time of day of the last answer.
    pub(super) answered: String,
    /// Why there is no newer one.
    pub(super) lost: Option<String>,
    pub(super) paused: bool,
    /// Lines that have gone up.
    pub(super) gone: u16,
    pub(super) plain: bool,
}

pub(super) fn top(server: &Listen, look: &Look, output: Output) -> Result<Answer, Failure> {
    let question = Ask::all(server.clone());
    if look.is_live(output) {
        return live(look.interval, |plain| Refused::open(question, plain));
    }
    let keys = ask(&question)?;
    let text = output.document(&keys)?;
    Ok(text.unwrap_or_else(|| render::text_within(&keys, columns())).into())
}

impl Refused {
    pub(super) fn open(question: Ask, plain: bool) -> Result<Self, Failure> {
        let (keys, answered) = (ask(&question)?, Zone::of_this_process().clock());
        Ok(Self { ask: question, keys, answered, lost: None, paused: false, gone: 0, plain })
    }
}

impl View for Refused {
    fn draw(&self, frame: &mut Frame<'_>) {
        draw::refused::draw(frame, self);
    }

    fn press(&mut self, key: KeyEvent) -> Flow {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Flow::Quit,
            KeyCode::Char('q') => return Flow::Quit,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Down | KeyCode::Char('j') => {
                let most = u16::try_from(self.keys.keys.len()).unwrap_or(u16::MAX);
                self.gone = self.gone.saturating_add(1).min(most);
            }
            KeyCode::Up | KeyCode::Char('k') => self.gone = self.gone.saturating_sub(1),
            _ => {}
        }
        Flow::Go
    }

    fn refresh(&mut self) {
        match ask(&self.ask) {
            Ok(keys) => {
                (self.keys, self.lost) = (keys, None);
                self.answered = Zone::of_this_process().clock();
            }
            Err(failure) => self.lost = Some(failure.to_string()),
        }
    }

    fn is_paused(&self) -> bool {
        self.paused
    }
}

#[cfg(test)]
mod tests {
    use limiter_api::refused::RefusedKey;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn key(rule: &str) -> RefusedKey {
        RefusedKey {
            domain: "auth".to_owned(),
            rule: rule.to_owned(),
            id: "0a1b2c3d4e5f".to_owned(),
            refused_per_second: 1.5,
            refused: 17,
            since: Some("2026-01-02T03:04:05Z".to_owned()),
            ..RefusedKey::default()
        }
    }

    fn drawn(view: &Refused, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, 7)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let cells = &terminal.backend().buffer().content;
        let line = |cells: &[ratatui::buffer::Cell]| {
            let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        cells.chunks(usize::from(width)).map(line).collect()
    }

    #[test]
    fn refused_keys_are_shown_until_there_is_an_answer_again() {
        let directory = tempfile::tempdir().unwrap();
        let nobody = Listen::Unix(directory.path().join("s"));
        let keys = RefusedKeys {
            refused: 40,
            others: 6,
            others_at_most: 3,
            keys: vec![key("logins"), key("tok\u{1b}ens")],
        };
        let mut view = Refused {
            ask: Ask::all(nobody),
            keys,
            answered: "03:04:05".to_owned(),
            lost: None,
            paused: false,
            gone: 0,
            plain: true,
        };
        let lines = drawn(&view, 200);
        assert!(lines[0].starts_with("refused by limiter serve at unix:"), "{lines:?}");
        assert!(lines[0].ends_with(" 03:04:05"), "{lines:?}");
        assert_eq!(lines[1], "RULE KEY ID REFUSED/S REFUSED SINCE LAST");
        assert!(lines[2].starts_with("auth: logins hidden 0a1b2c3d4e5f 1.5 17"), "{lines:?}");
        assert!(lines[3].starts_with("auth: tok\u{fffd}ens hidden"), "{lines:?}");
        assert!(lines[4].starts_with("hidden: "), "{lines:?}");
        assert_eq!(lines[5], "refused in all: 40; 6 of these have other keys, each at most 3");
        assert_eq!(lines[6], "arrows scroll p pause q quit");
        // Details leave a narrow line.
        assert_eq!(drawn(&view, 70)[1], "RULE KEY REFUSED/S REFUSED SINCE");

        let press = |view: &mut Refused, code: KeyCode| view.press(code.into());
        assert_eq!(press(&mut view, KeyCode::Down), Flow::Go);
        press(&mut view, KeyCode::Char('p'));
        view.refresh();
        let lines = drawn(&view, 200);
        assert!(lines[0].contains("NO ANSWER since 03:04:05: old numbers PAUSED"), "{lines:?}");
        assert_eq!(lines[1], "RULE KEY ID REFUSED/S REFUSED SINCE LAST");
        assert!(lines[2].starts_with("auth: tok"), "{lines:?}");
        assert!(lines[6].contains("cannot ask `limiter serve`"), "{lines:?}");
        for _ in 0..3 {
            press(&mut view, KeyCode::Up);
        }
        assert!(drawn(&view, 200)[2].starts_with("auth: logins") && view.is_paused());
        assert_eq!(press(&mut view, KeyCode::Char('q')), Flow::Quit);
    }
}
