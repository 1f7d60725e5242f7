//! The comparison of a command's output with the page.
//!
//! Values that no page can know are of a few kinds, and differ wherever they stand: times and
//! dates, ids that the kernel or the machine gives, seconds that run, rates of the last ones. All
//! else is compared, counters included. Blanks in a row count as one, because columns are as wide
//! as what is in them.

/// Seconds that run may be this far apart.
const SECONDS_APART: f64 = 30.0;

/// Words before a number that the kernel gives.
const IDS: [&str; 6] = ["pid", "program", "id", "tag", "link-netns", "program_id"];

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// Of a kind that may differ.
    Kind(&'static str),
    /// Seconds that run.
    Seconds(f64),
    Any,
}

/// Compares `said` with `page`: `None` if they agree, or the first line of the page that `said`
/// lacks.
pub fn differs(page: &[String], said: &[String]) -> Option<usize> {
    let page: Vec<Vec<Piece>> = page.iter().map(|line| pieces(line, true)).collect();
    // The cables of tests carry nothing but what is sent, and so have no ARP.
    let said = said.iter().map(|line| line.replace("NOARP,", ""));
    let said: Vec<Vec<Piece>> = said.map(|line| pieces(&line, false)).collect();
    let mut furthest = 0;
    let same = lines_match(&page, &said, 0, &mut furthest);
    (!same).then_some(furthest)
}

fn lines_match(page: &[Vec<Piece>], said: &[Vec<Piece>], at: usize, furthest: &mut usize) -> bool {
    *furthest = (*furthest).max(at);
    match page.split_first() {
        None => said.is_empty(),
        Some((first, rest)) if *first == [Piece::Any] => {
            (0..=said.len()).any(|left_out| lines_match(rest, &said[left_out..], at + 1, furthest))
        }
        Some((first, rest)) => said.split_first().is_some_and(|(line, more)| {
            pieces_match(first, line) && lines_match(rest, more, at + 1, furthest)
        }),
    }
}

fn pieces_match(page: &[Piece], said: &[Piece]) -> bool {
    match page.split_first() {
        None => said.is_empty(),
        Some((Piece::Any, rest)) => {
            (0..=said.len()).any(|left_out| pieces_match(rest, &said[left_out..]))
        }
        Some((first, rest)) => said.split_first().is_some_and(|(piece, more)| {
            let same = match (first, piece) {
                (Piece::Seconds(a), Piece::Seconds(b)) => (a - b).abs() <= SECONDS_APART,
                (a, b) => a == b,
            };
            same && pieces_match(rest, more)
        }),
    }
}

/// A line in words and what stands between them.
fn pieces(line: &str, page: bool) -> Vec<Piece> {
    let mut words = Vec::new();
    let mut rest = without_rates(line.trim_end());
    while !rest.is_empty() {
        let (one, more) = rest.split_at(word_length(rest));
        if one != " " || words.last() != Some(&" ") {
            words.push(one);
        }
        rest = more;
    }
    (0..words.len()).map(|at| piece(&words, at, page)).collect()
}

/// The part of a line before the rates of an interface in `limiter status`, which are those of the
/// last seconds; the whole of any other line.
fn without_rates(line: &str) -> &str {
    let rates = |rates: &str| rates.contains("/s; drops ") && rates.ends_with("bit/s");
    match line.split_once("passes ") {
        Some((before, after)) if rates(after) && before.trim().is_empty() => {
            line.split_at(before.len() + "passes".len()).0
        }
        _ => line,
    }
}

/// The length of the word that a text begins with, or of the sign.
fn word_length(text: &str) -> usize {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut end = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // A colon inside of a word: `e2:ce`, `19:32`.
        let inside = c == ':' && end > 0 && chars.peek().is_some_and(char::is_ascii_alphanumeric);
        if !word(c) && !inside {
            return if end == 0 { c.len_utf8() } else { end };
        }
        end += c.len_utf8();
    }
    end
}

fn piece(words: &[&str], at: usize, page: bool) -> Piece {
    let word = words[at];
    if page && word == "..." {
        return Piece::Any;
    }
    // The words before and after, over blanks and what JSON puts around them.
    let skipped = |word: &&&str| !matches!(**word, " " | "\"" | ":");
    let before = words[..at].iter().rev().find(skipped).copied().unwrap_or_default();
    let after: String = words[at + 1..].iter().take(2).copied().collect();
    if is_time(word) {
        Piece::Kind("time")
    } else if is_date(word) && is_clock(after.trim()) {
        Piece::Kind("date")
    } else if is_clock(word) && is_date(before) {
        Piece::Kind("clock")
    } else if is_mac(word) {
        Piece::Kind("mac")
    } else if IDS.contains(&before) && is_id(word) {
        Piece::Kind("id")
    } else if before == "time" && word.ends_with("ms") {
        Piece::Kind("milliseconds")
    } else if let Some(seconds) = seconds(word, before, &after) {
        Piece::Seconds(seconds)
    } else {
        Piece::Text(word.to_owned())
    }
}

/// `2026-11-20T19:32:47.600370Z`
fn is_time(word: &str) -> bool {
    word.len() >= 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T' && word.starts_with("20")
}

/// `2026-11-20`
fn is_date(word: &str) -> bool {
    is_like(word, "2026-11-20")
}

/// `19:32:47`, or `19:32:47Z`
fn is_clock(word: &str) -> bool {
    is_like(word.strip_suffix('Z').unwrap_or(word), "19:32:47")
}

/// True if both have digits in the same places, and the same otherwise.
fn is_like(word: &str, example: &str) -> bool {
    let alike =
        |(one, other): (u8, u8)| one == other || [one, other].iter().all(u8::is_ascii_digit);
    word.len() == example.len() && word.bytes().zip(example.bytes()).all(alike)
}

/// `e2:ce:80:f3:46:83`
fn is_mac(word: &str) -> bool {
    word.len() == 17 && word.split(':').filter(|byte| byte.len() == 2).count() == 6
}

fn is_id(word: &str) -> bool {
    let number = word.bytes().all(|byte| byte.is_ascii_digit());
    let tag = word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    number || tag || word.starts_with("limiter-") || word == "peer"
}

/// `600 s`, `1.9 min`, and in JSON and in headers what is called so.
fn seconds(word: &str, before: &str, after: &str) -> Option<f64> {
    let number: f64 = word.trim_end_matches('.').parse().ok()?;
    let called = before.ends_with("_seconds") || matches!(before, "seconds" | "seconds_left");
    let header = matches!(before, "x-ratelimit-reset" | "retry-after");
    if before == "full_in_ns" {
        return Some(number / 1e9);
    }
    match after {
        " min" => Some(number * 60.0),
        " s" => Some(number),
        _ => (called || header).then_some(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(page: &str, said: &str) -> bool {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        differs(&lines(page), &lines(said)).is_none()
    }

    #[test]
    fn what_no_page_can_know_may_differ() {
        for (page, said) in [
            ("2026-11-20T19:32:47.600370Z  INFO x", "2027-01-02T03:04:05.1Z  INFO x"),
            ("BEGAN 2026-11-20 19:32:47Z x", "BEGAN 2027-01-02 03:04:05Z x"),
            ("link/ether e2:ce:80:f3:46:83 brd", "link/ether 02:00:00:00:00:01 brd"),
            ("prog/xdp id 1774 tag d81b37af57c91032", "prog/xdp id 9 tag 0123456789abcdef"),
            ("pid            22232", "pid   7"),
            ("{\"pid\":16365,\"x\":1}", "{\"pid\":1,\"x\":1}"),
            ("full in    119.9 s", "full in    101.22 s"),
            ("{\"ends_in_seconds\":3588}", "{\"ends_in_seconds\":3599}"),
            (
                "  passes 0/s, 0 bit/s; drops 0/s, 0 bit/s",
                "  passes 1,636/s, 13.1 Mbit/s; drops 7.2/s, 9 kbit/s",
            ),
            ("a\n...\nb", "a\nx\ny\nb"),
            ("a\n...", "a"),
            ("{\"a\":[1,...],\"b\":2}", "{\"a\":[1,2,3],\"b\":2}"),
        ] {
            assert!(same(page, said), "{page:?} {said:?}");
        }
    }

    #[test]
    fn all_else_is_compared() {
        for (page, said) in [
            ("drop 27", "drop 28"),
            ("generation 1", "generation 2"),
            ("pid x", "pid 7"),
            ("expires in 600 s", "expires in 500 s"),
            ("a\nb", "a"),
            ("a", "a\nb"),
            ("a\n...\nb", "a\nx"),
            ("[1,...],2", "[1,5],3"),
            ("", "x"),
            ("link/ether e2:ce:80:f3:46:83", "link/ether none"),
            ("1000/s", "1000/min"),
            ("it passes 1/s; drops 2 bit/s", "it passes 3/s; drops 2 bit/s"),
            ("passes 0/s, 0 bit/s; drops 0/s, 0 bit/s", "passes nothing"),
            ("until 2026-11-20", "until 2026-11-21"),
            ("at 19:32:47", "at 19:32:48"),
        ] {
            assert!(!same(page, said), "{page:?} {said:?}");
        }
    }
}
