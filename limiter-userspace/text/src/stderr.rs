//! Standard error, which may be a file on a full disk: that ends nothing, as `eprintln!` would. A
//! line there is one line: names of files and rules begin none of their own.

use std::fmt;
use std::io::{self, Write};

use crate::plain::{clean, is_plain};

/// Writes a line, if that is possible.
pub fn say(line: fmt::Arguments<'_>) {
    // In one call: lines of several processes do not mix.
    let line = clean(&line.to_string()) + "\n";
    if let Err(error) = io::stderr().write_all(line.as_bytes()) {
        tracing::debug!(%error, "standard error cannot be written to");
    }
}

/// The writer of the log, a line a call.
#[derive(Debug)]
pub struct Log<W> {
    /// Writer of the plain lines.
    pub to: W,
    /// True if it is a terminal, for which lines come in colours.
    pub coloured: bool,
}

impl<W: Write> Write for Log<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let logged = logged(&String::from_utf8_lossy(line), self.coloured);
        self.to.write_all(logged.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Codes that tracing colours lines with, of which nothing hides or moves text: faint, italic, five
/// colours, and their end.
const COLOURS: [&str; 8] = [
    "\u{1b}[0m",
    "\u{1b}[2m",
    "\u{1b}[3m",
    "\u{1b}[31m",
    "\u{1b}[32m",
    "\u{1b}[33m",
    "\u{1b}[34m",
    "\u{1b}[35m",
];

/// One line; what is not plain in it is written in other words.
fn logged(line: &str, coloured: bool) -> String {
    let (mut rest, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
    let mut logged = String::with_capacity(line.len());
    while let Some(c) = rest.chars().next() {
        let colour = COLOURS.iter().find(|colour| coloured && rest.starts_with(**colour));
        let length = colour.map_or(c.len_utf8(), |colour| colour.len());
        if colour.is_some() || is_plain(c) {
            logged.push_str(rest.get(..length).unwrap_or_default());
        } else {
            logged.extend(c.escape_debug());
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    logged + end
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_the_log_is_one_line_whatever_it_says() {
        let name = "b\u{1b}[2Jud\u{1b}[8m\nget\"} 1\r\n2026-11-22 INFO forged \
                    \u{202e}\u{9b}31m\u{2028}\u{7}\u{0}";
        for coloured in [false, true] {
            let kept = Kept::default();
            let to = kept.clone();
            let log = tracing_subscriber::fmt()
                .with_writer(move || Log { to: to.clone(), coloured })
                .with_ansi(coloured)
                .finish();
            tracing::subscriber::with_default(log, || {
                tracing::warn!("{name} is over its soft limit");
                tracing::warn!(%name, debug = ?name, "reported");
            });
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), 2, "{text:?}");
            assert_eq!(text.contains('\u{1b}'), coloured, "{text:?}");
            let text = text.replace('\n', "");
            let plain = COLOURS.iter().fold(text, |text, colour| text.replace(colour, ""));
            assert!(plain.chars().all(is_plain), "{plain:?}");
            assert!(plain.contains("forged") && plain.contains("\\u{202e}"), "{plain:?}");
        }
    }
}
