//! Characters that are only what is seen of them. Names go to terminals, into logs and beside other
//! text; there, the others steer a terminal, begin a line of their own, turn around what stands
//! beside them, or hide.

use icu_properties::CodePointSetData;
use icu_properties::props::{DefaultIgnorableCodePoint, EnumeratedProperty as _, GeneralCategory};

/// True if a character is no more than what is seen of it: by Unicode's properties, neither
/// ignorable, nor a control or a mark of format, nor a separator of lines, nor one that nobody has
/// given a form.
pub fn is_plain(c: char) -> bool {
    if matches!(c, ' '..='~') {
        return true;
    }
    let ignorable = CodePointSetData::new::<DefaultIgnorableCodePoint>();
    !ignorable.contains(c)
        && !matches!(
            GeneralCategory::for_char(c),
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
                | GeneralCategory::PrivateUse
                | GeneralCategory::Surrogate
                | GeneralCategory::Unassigned
        )
}

/// Text in which everything is plain, for a place in a line.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_replaced() {
        let cleaned = clean("a\u{1b}[31m\u{202e}b\r\n\u{9b}c");
        assert_eq!(cleaned, "a\u{fffd}[31m\u{fffd}b\u{fffd}\u{fffd}\u{fffd}c");
        assert_eq!(clean("\u{7f}\u{85}\u{200b}\u{2028}\u{2066}\u{feff}"), "\u{fffd}".repeat(6));
        assert_eq!(clean("every source é 日本"), "every source é 日本");
    }

    /// Of every kind of what is not seen one, and of scripts that are.
    #[test]
    fn what_is_not_seen_is_not_plain() {
        for hidden in [
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{180e}',
            '\u{200b}',
            '\u{202e}',
            '\u{2028}',
            '\u{2064}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{1bca0}',
            '\u{1d173}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{e000}',
            '\u{378}',
            '\u{85}',
            '\t',
            '\n',
            '\u{7f}',
        ] {
            assert!(!is_plain(hidden), "{:?}", hidden.escape_unicode().to_string());
        }
        for seen in "aé日本語ไทยहिन्दीעבריתالعربية€🙂ñ~ -".chars()
        {
            assert!(is_plain(seen), "{seen:?}");
        }
    }
}
