//! Characters that are only what is seen of them. Names go to terminals, into logs and beside other
//! text; there, the others steer a terminal, begin a line of their own, turn around what stands
//! beside them, or hide.

/// True if a character is no more than what is seen of it.
pub fn is_plain(c: char) -> bool {
    !(c.is_control()
        || matches!(
            c,
            // Marks, embeddings, overrides and isolates of direction; spaces and joiners without
            // width; separators of lines and paragraphs; invisible operators; annotations; tags.
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        ))
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
}
