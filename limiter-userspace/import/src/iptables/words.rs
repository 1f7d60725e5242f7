//! Splits a line of iptables-save into words. Its quoting differs from a shell's: a double quote
//! must begin a word, and a backslash inside keeps the next character. Single quotes work as in a
//! shell, for files written by people and ufw.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenQuote;

/// Divides a line into its words.
pub(crate) fn words(line: &str) -> Result<Vec<String>, OpenQuote> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(char::is_ascii_whitespace).is_some() {}
        let Some(first) = chars.peek().copied() else { return Ok(words) };
        let mut word = String::new();
        if first == '"' || first == '\'' {
            chars.next();
            loop {
                match chars.next().ok_or(OpenQuote)? {
                    c if c == first => break,
                    '\\' if first == '"' => word.push(chars.next().ok_or(OpenQuote)?),
                    c => word.push(c),
                }
            }
        } else {
            while let Some(c) = chars.next_if(|c| !c.is_ascii_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_divided_as_iptables_does() {
        for (line, expected) in [
            ("", &[][..]),
            (" -A  INPUT\t-j DROP ", &["-A", "INPUT", "-j", "DROP"]),
            (r#"--comment "a \"b\" \\ c" -j X"#, &["--comment", "a \"b\" \\ c", "-j", "X"]),
            ("--comment 'dapp_Open SSH'", &["--comment", "dapp_Open SSH"]),
            ("--log-prefix \"\"", &["--log-prefix", ""]),
            (r"a\b", &["a\\b"]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
        for line in ["\"", "a \"b", "'b", "\"a\\"] {
            assert_eq!(words(line), Err(OpenQuote), "{line}");
        }
    }
}
