//! Lines of the guest on its second serial line, and what follows from them. The first line is the
//! kernel's, which may write in the middle of anything.

use crate::summary::Tally;

/// Begins every line of the guest's that is not a test's.
const MARK: &str = "limiter-vm: ";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The test ran and held.
    Passed,
    /// The test is marked as to be ignored.
    Ignored,
    Failed(String),
}

/// A test, how it ended, after how long, and what it said.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The test's name, as libtest lists it.
    pub test: String,
    pub(super) ended: Ended,
    pub(super) seconds: Option<f64>,
    /// What it printed.
    pub said: String,
}

/// Everything that one guest said.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// Release of the guest's kernel, as `uname -r` says it.
    pub(super) release: Option<String>,
    /// True if the guest came to its end.
    pub(super) done: bool,
    /// Lines before the first test.
    pub(super) before: String,
    begun: Option<(String, String)>,
    ended: Vec<Outcome>,
}

impl Transcript {
    /// Takes the next line. Says which test ended by it.
    pub(super) fn line(&mut self, line: &str) -> Option<&Outcome> {
        let line = line.trim_end_matches(['\r', '\n']);
        let Some(words) = line.strip_prefix(MARK) else {
            let said = self.begun.as_mut().map_or(&mut self.before, |(_, said)| said);
            said.push_str(line);
            said.push('\n');
            return None;
        };
        let words: Vec<&str> = words.split(' ').collect();
        match *words {
            ["kernel", release] => self.release = Some(release.to_owned()),
            ["start", test] => self.begun = Some((test.to_owned(), String::new())),
            ["end", code, from, to] => {
                let (test, said) = self.begun.take()?;
                self.ended.push(Outcome {
                    ended: ended(code, &said),
                    seconds: seconds(from, to),
                    test,
                    said,
                });
                return self.ended.last();
            }
            ["done"] => self.done = true,
            _ => {
                self.before.push_str(line);
                self.before.push('\n');
            }
        }
        None
    }

    /// An outcome for every test that was wanted: what did not end has failed, for the reason
    /// `why`.
    pub(super) fn finish(&mut self, wanted: &[String], why: &str) -> Vec<Outcome> {
        let outcome = |test: &String| {
            if let Some(outcome) = self.ended.iter().find(|outcome| outcome.test == *test) {
                return outcome.clone();
            }
            let (ended, said) = match &self.begun {
                Some((begun, said)) if begun == test => (format!("did not end: {why}"), &**said),
                _ => (format!("was not begun: {why}"), ""),
            };
            Outcome {
                test: test.clone(),
                ended: Ended::Failed(ended),
                seconds: None,
                said: said.to_owned(),
            }
        };
        wanted.iter().map(outcome).collect()
    }
}

/// libtest's exit code and closing line must say the same.
fn ended(code: &str, said: &str) -> Ended {
    let mut tally = Tally::default();
    for line in said.lines() {
        if let Some(more) = Tally::from_line(line) {
            tally += more;
        }
    }
    match (code, tally) {
        ("0", Tally { passed: 1, failed: 0, skipped: 0 }) => Ended::Passed,
        ("0", Tally { passed: 0, failed: 0, skipped: 1 }) => Ended::Ignored,
        // The code of busybox's timeout for a child that it had to kill.
        ("137" | "143", _) => Ended::Failed("out of time".to_owned()),
        (_, Tally { failed: 1.., .. }) => Ended::Failed("failed".to_owned()),
        _ => Ended::Failed(format!("exit code {code} with {tally}")),
    }
}

/// Between two readings of /proc/uptime.
fn seconds(from: &str, to: &str) -> Option<f64> {
    Some(to.parse::<f64>().ok()? - from.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, wanted: &[&str]) -> (Transcript, Vec<(Ended, Option<f64>)>) {
        let mut transcript = Transcript::default();
        for line in text.lines() {
            transcript.line(line);
        }
        let wanted: Vec<String> = wanted.iter().map(|test| format!("verdict::{test}")).collect();
        let outcomes = transcript.finish(&wanted, "no time");
        let outcomes = outcomes.into_iter().map(|one| (one.ended, one.seconds)).collect();
        (transcript, outcomes)
    }

    // Not at the begin of a line of ours: an outer `cargo xtask test` would count it.
    fn closing(passed: u32, failed: u32, ignored: u32) -> String {
        format!("test result: ok. {passed} passed; {failed} failed; {ignored} ignored; 0 measured")
    }

    fn failed(why: &str) -> Ended {
        Ended::Failed(why.to_owned())
    }

    #[test]
    fn a_whole_run_is_read() {
        let text = format!(
            "hello\nlimiter-vm: kernel 6.1.0-56\r\n\
             limiter-vm: start verdict::a\r\nrunning 1 test\n{}\n\nlimiter-vm: end 0 1.50 4.00\n\
             limiter-vm: start verdict::b\n{}\nlimiter-vm: end 101 4.00 4.25\n\
             limiter-vm: start verdict::c\n{}\nlimiter-vm: end 0 5.00 5.00\nlimiter-vm: done\n",
            closing(1, 0, 0),
            closing(0, 1, 0),
            closing(0, 0, 1),
        );
        let (transcript, outcomes) = read(&text, &["a", "b", "c"]);
        assert_eq!(transcript.release.as_deref(), Some("6.1.0-56"));
        assert!(transcript.done);
        assert_eq!(transcript.before, "hello\n");
        assert_eq!(
            outcomes,
            [
                (Ended::Passed, Some(2.5)),
                (failed("failed"), Some(0.25)),
                (Ended::Ignored, Some(0.0))
            ]
        );
    }

    #[test]
    fn success_needs_a_closing_line_with_one_test() {
        let end = |said: &str, code: &str| {
            let text =
                format!("limiter-vm: start verdict::a\n{said}\nlimiter-vm: end {code} 1 2\n");
            read(&text, &["a"]).1[0].0.clone()
        };
        assert_eq!(end(&closing(1, 0, 0), "0"), Ended::Passed);
        for (said, code) in [
            (String::new(), "0"),
            (closing(0, 0, 0), "0"),
            (closing(2, 0, 0), "0"),
            (closing(1, 0, 0), "1"),
            (String::new(), "127"),
        ] {
            assert!(matches!(end(&said, code), Ended::Failed(_)), "{said} {code}");
        }
        assert_eq!(end("", "137"), failed("out of time"));
    }

    #[test]
    fn what_is_missing_has_failed() {
        // A panic of the kernel in the middle of b.
        let text = format!(
            "limiter-vm: start verdict::a\n{}\nlimiter-vm: end 0 1 2\n\
             limiter-vm: start verdict::b\nrunning",
            closing(1, 0, 0)
        );
        let (transcript, outcomes) = read(&text, &["a", "b", "c"]);
        assert!(!transcript.done);
        let ended: Vec<Ended> = outcomes.into_iter().map(|(ended, _)| ended).collect();
        let expected =
            [Ended::Passed, failed("did not end: no time"), failed("was not begun: no time")];
        assert_eq!(ended, expected);
        assert_eq!(read("", &["a"]).1[0].0, failed("was not begun: no time"));
    }
}
