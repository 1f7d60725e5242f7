//! The line that is typed, with the keys that shells know.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Most characters that fit.
const LONGEST: usize = 60;

/// A line with a cursor. A line that comes filled in is selected as a whole: what is typed replaces
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    text: Vec<char>,
    /// Characters before the cursor.
    at: usize,
    chosen: bool,
}

impl Line {
    /// A line that is filled in, and selected.
    pub(super) fn of(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        Self { at: text.len(), chosen: !text.is_empty(), text }
    }

    pub(super) fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// True if the whole line is selected.
    pub(super) const fn is_chosen(&self) -> bool {
        self.chosen
    }

    /// Text before the cursor, the character at it, and the text behind that.
    pub(super) fn parts(&self) -> (String, Option<char>, String) {
        let (before, rest) = self.text.split_at(self.at.min(self.text.len()));
        let (at, behind) = rest.split_first().map_or((None, rest), |(at, rest)| (Some(*at), rest));
        (before.iter().collect(), at, behind.iter().collect())
    }

    /// Ends the selection: the text is kept, and typing goes on.
    pub(super) const fn settle(&mut self) {
        self.chosen = false;
    }

    /// Applies a key, if it edits the line.
    pub(super) fn press(&mut self, key: KeyEvent) {
        let end = self.text.len();
        let chosen = std::mem::take(&mut self.chosen);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('u') if control => self.remove(if chosen { 0..end } else { 0..self.at }),
            KeyCode::Char('k') if control => self.remove(self.at..end),
            KeyCode::Char('a') if control => self.at = 0,
            KeyCode::Char('e') if control => self.at = end,
            KeyCode::Backspace | KeyCode::Delete if chosen => self.remove(0..end),
            KeyCode::Backspace => self.remove(self.at.saturating_sub(1)..self.at),
            KeyCode::Delete => self.remove(self.at..end.min(self.at + 1)),
            KeyCode::Left => self.at = self.at.saturating_sub(1),
            KeyCode::Right => self.at = end.min(self.at + 1),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = end,
            KeyCode::Char(c) if !control && !c.is_control() => {
                if chosen {
                    self.remove(0..end);
                }
                if self.text.len() < LONGEST {
                    self.text.insert(self.at, c);
                    self.at += 1;
                }
            }
            _ => self.chosen = chosen,
        }
    }

    /// Removes a range, and puts the cursor there.
    fn remove(&mut self, range: std::ops::Range<usize>) {
        self.at = range.start;
        self.text.drain(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with `|` where is typed, or `[` and `]` around it.
    fn after(filled: &str, keys: &[KeyEvent]) -> String {
        let mut line = Line::of(filled);
        for key in keys {
            line.press(*key);
        }
        if line.is_chosen() {
            return format!("[{}]", line.text());
        }
        let (before, at, behind) = line.parts();
        format!("{before}|{}{behind}", at.map(String::from).unwrap_or_default())
    }

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::from(code)
    }

    fn typed(text: &str) -> Vec<KeyEvent> {
        text.chars().map(|c| key(KeyCode::Char(c))).collect()
    }

    fn control(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    #[test]
    fn what_is_typed_takes_the_place_of_what_was_filled_in() {
        assert_eq!(after("1000/s", &[]), "[1000/s]");
        assert_eq!(after("1000/s", &typed("10/s")), "10/s|");
        assert_eq!(after("1000/s", &[key(KeyCode::Backspace)]), "|");
        assert_eq!(after("1000/s", &[key(KeyCode::Delete)]), "|");
        assert_eq!(after("1000/s", &[control('u')]), "|");
        // A key that moves keeps the text.
        assert_eq!(after("1000/s", &[key(KeyCode::End), key(KeyCode::Backspace)]), "1000/|");
        assert_eq!(after("1000/s", &[key(KeyCode::Home), key(KeyCode::Char('2'))]), "2|1000/s");
        assert_eq!(after("1000/s", &[key(KeyCode::Tab), control('x')]), "[1000/s]");
        assert_eq!(after("", &typed("é")), "é|");
    }

    #[test]
    fn a_line_is_changed_at_any_place() {
        let left = |times| vec![key(KeyCode::Left); times];
        assert_eq!(after("1000/s", &left(2)), "1000|/s");
        assert_eq!(after("1000/s", &left(99)), "|1000/s");
        let both = |times, code| [left(times), vec![key(code)]].concat();
        assert_eq!(after("1000/s", &both(2, KeyCode::Delete)), "1000|s");
        assert_eq!(after("1000/s", &both(2, KeyCode::Backspace)), "100|/s");
        assert_eq!(after("1000/s", &both(2, KeyCode::Char('0'))), "10000|/s");
        assert_eq!(after("1000/s", &[left(2), vec![control('u')]].concat()), "|/s");
        assert_eq!(after("1000/s", &[left(2), vec![control('k')]].concat()), "1000|");
        assert_eq!(after("1000/s", &[left(2), vec![control('a')]].concat()), "|1000/s");
        assert_eq!(after("1000/s", &[left(2), vec![control('e')]].concat()), "1000/s|");
        assert_eq!(after("1000/s", &both(0, KeyCode::Right)), "1000/s|");
        assert_eq!(after("1000/s", &[key(KeyCode::End), key(KeyCode::Delete)]), "1000/s|");
        assert_eq!(after("1000/s", &[key(KeyCode::Home), key(KeyCode::Backspace)]), "|1000/s");
        assert_eq!(after("", &typed(&"x".repeat(99))), "x".repeat(LONGEST) + "|");
        let dropped = [key(KeyCode::Esc), control('z'), key(KeyCode::F(1))];
        assert_eq!(after("", &dropped), "|");
    }
}
