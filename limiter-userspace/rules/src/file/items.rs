//! A large file, divided into the items of its list, so that they can be read side by side.
//!
//! Nearly all of a large file is one list, `descriptors`, at its end. A line that is indented like
//! the first item of the list and begins with a dash begins an item: nothing inside an item is
//! indented as little, but for what stands in quotes or braces that are still open, and then the
//! item before it ends too early and cannot be read. Anybody who reads the items reads the whole
//! file where one of them is refused, so what is wrong with it is said of the whole.

/// The line that begins the list.
pub(super) const HEAD: &str = "descriptors:\n";

/// A file whose end is the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Divided<'a> {
    /// Text before the first item, with the line that begins the list.
    pub(super) head: &'a str,
    /// All items: at least one.
    pub(super) items: Vec<Item<'a>>,
}

/// An item of the list, from the spaces before its dash to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// The line where it begins, from 1.
    pub(super) line: u64,
    pub(super) text: &'a str,
}

impl<'a> Divided<'a> {
    /// Divides a file; `None` if it is not certain that it can be divided.
    pub(super) fn of(text: &'a str) -> Option<Self> {
        // A lone carriage return ends a line as well, and would count as none here.
        if text.contains('\r') {
            return None;
        }
        let begin = list(text)?;
        let mut items: Vec<Item<'a>> = Vec::new();
        // Begin and indent of the first item; begin and line of the one under way.
        let mut first: Option<(usize, usize)> = None;
        let mut current = (0, 0);
        let (mut at, mut line) = (0, 0);
        for content in text.split_inclusive('\n') {
            let begins = at;
            at += content.len();
            line += 1;
            if begins < begin {
                continue;
            }
            let dash = content.trim_start_matches(' ');
            let depth = content.len() - dash.len();
            let blank = dash.trim_end().is_empty() || dash.starts_with('#');
            let item = dash.starts_with("- ") || dash == "-\n";
            // The end of the list, or of the document: another key, or a mark.
            if depth == 0 && !blank && !(item && first.is_none_or(|(_, indent)| indent == 0)) {
                return None;
            }
            if !item {
                continue;
            }
            let (_, indent) = *first.get_or_insert((begins, depth));
            if depth == indent {
                if current != (0, 0) {
                    items.push(Item { line: current.1, text: text.get(current.0..begins)? });
                }
                current = (begins, line);
            }
        }
        let (begins, _) = first?;
        items.push(Item { line: current.1, text: text.get(current.0..)? });
        Some(Self { head: text.get(..begins)?, items })
    }
}

/// Begin of the list: behind the one line that is [`HEAD`].
fn list(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        if line.trim_end() == HEAD.trim_end() {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(&str, Vec<(u64, &str)>)> {
        let Divided { head, items } = Divided::of(text)?;
        Some((head, items.into_iter().map(|item| (item.line, item.text)).collect()))
    }

    #[test]
    fn items_stay_whole_and_keep_their_lines() {
        let text = "domain: x\ndescriptors:\n  # one\n  - key: a\n    b: c\n  - key: d\n    - e\n";
        let (head, items) = of(text).unwrap();
        assert_eq!(head, "domain: x\ndescriptors:\n  # one\n");
        assert_eq!(items, [(4, "  - key: a\n    b: c\n"), (6, "  - key: d\n    - e\n")]);
        let flush = "descriptors:\n- key: a\n\n- key: b";
        assert_eq!(of(flush).unwrap().1, [(2, "- key: a\n\n"), (4, "- key: b")]);
    }

    #[test]
    fn what_is_not_one_list_at_the_end_is_not_divided() {
        for text in [
            "",
            "domain: x\n",
            "descriptors: []\n",
            "descriptors:\n",
            "descriptors:\n  - key: a\nbudgets:\n  - name: b\n  - name: c\n",
            "descriptors:\n  - key: a\n---\n  - key: b\n",
            "descriptors:\n  - key: a\n...\n  - key: b\n",
            "descriptors:\n- key: a\r\n- key: b\r\n- key: c\r\n",
            "descriptors:\n  - key: a\n- key: b\n- key: c\n",
        ] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }
}
