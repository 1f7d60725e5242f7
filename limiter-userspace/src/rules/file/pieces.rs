//! A large file in pieces that can be read side by side.
//!
//! Nearly all of a large file is one list, `descriptors`, at its end. A line that is indented like the first item of
//! the list and begins with a dash begins an item: nothing inside an item is indented as little, but for what stands in
//! quotes or braces that are still open, and then the piece before it ends too early and cannot be read. Whoever reads
//! the pieces reads the whole file where one of them is refused, so what is wrong with it is said of the whole.

use std::borrow::Cow;

/// Shorter ones are not worth a thread.
const SHORTEST: usize = 256 << 10;

/// The line that begins the list.
const HEAD: &str = "descriptors:";

/// The file in up to `most` pieces of about the same size, each a file of its own whose lines have the numbers that
/// they have in the whole. One piece, the whole, where nothing says that it can be divided.
pub(super) fn pieces(text: &str, most: usize) -> Vec<Cow<'_, str>> {
    divided(text, SHORTEST, most).unwrap_or_else(|| vec![text.into()])
}

/// [`pieces`] of about so many bytes at least; `None` for one.
pub(super) fn divided(text: &str, shortest: usize, most: usize) -> Option<Vec<Cow<'_, str>>> {
    let count = text.len().checked_div(shortest)?.min(most);
    // A lone carriage return ends a line as well, and would count as none here.
    if count < 2 || text.contains('\r') {
        return None;
    }
    let list = list(text)?;
    let mut cuts = Vec::new();
    let mut line = 0;
    let (mut at, mut indent) = (0, None);
    let size = text.len().div_ceil(count);
    for content in text.split_inclusive('\n') {
        let begins = at;
        at += content.len();
        line += 1;
        if begins < list {
            continue;
        }
        let dash = content.trim_start_matches(' ');
        let depth = content.len() - dash.len();
        let blank = dash.trim_end().is_empty() || dash.starts_with('#');
        let item = dash.starts_with("- ") || dash == "-\n";
        // The end of the list, or of the document: another key, or a mark.
        if depth == 0 && !blank && !(item && indent.is_none_or(|indent| indent == 0)) {
            return None;
        }
        if !item {
            continue;
        }
        let indent = *indent.get_or_insert(depth);
        if depth == indent && begins >= size * (cuts.len() + 1) {
            cuts.push((begins, line));
        }
    }
    let mut pieces = Vec::with_capacity(count);
    let mut from: (usize, usize) = (0, 1);
    for to in cuts.into_iter().chain([(text.len(), 0)]) {
        let part = text.get(from.0..to.0)?;
        pieces.push(if from.0 == 0 {
            part.into()
        } else {
            // Its first line is to have the number that it has in the whole.
            format!("{}{HEAD}\n{part}", "\n".repeat(from.1.checked_sub(2)?)).into()
        });
        from = to;
    }
    Some(pieces)
}

/// Where the list begins: behind the one line that is [`HEAD`].
fn list(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        if line.trim_end() == HEAD {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Vec<Cow<'_, str>>> {
        divided(text, 1, 2)
    }

    #[test]
    fn items_stay_whole_and_keep_their_lines() {
        let text = "domain: x\ndescriptors:\n  # one\n  - key: a\n    b: c\n  - key: d\n    - e\n";
        let pieces = of(text).unwrap();
        assert_eq!(pieces[0], "domain: x\ndescriptors:\n  # one\n  - key: a\n    b: c\n");
        assert_eq!(pieces[1], "\n\n\n\ndescriptors:\n  - key: d\n    - e\n");
        let flush = "descriptors:\n- key: a\n- key: b\n- key: c\n";
        assert_eq!(of(flush).unwrap()[1], "\ndescriptors:\n- key: b\n- key: c\n");
    }

    #[test]
    fn what_is_not_one_list_at_the_end_is_not_divided() {
        for text in [
            "",
            "domain: x\n",
            "descriptors: []\n",
            "descriptors:\n  - key: a\nbudgets:\n  - name: b\n  - name: c\n",
            "descriptors:\n  - key: a\n---\n  - key: b\n",
            "descriptors:\n  - key: a\n...\n  - key: b\n",
            "descriptors:\n- key: a\r\n- key: b\r\n- key: c\r\n",
            "descriptors:\n  - key: a\n- key: b\n- key: c\n",
        ] {
            assert_eq!(of(text), None, "{text:?}");
        }
        assert_eq!(pieces("descriptors:\n- key: a\n- key: b\n", 2).len(), 1);
    }
}
