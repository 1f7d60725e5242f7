//! Programs of others on interfaces under limits.

use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A program on an interface under limits that is not this limiter's, in the same direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OtherProgram {
    /// Its hook: `XDP`, `tc in` or `tc out`.
    pub hook: String,
    /// The kernel's id of the program.
    pub program_id: u32,
    /// Its name; none where the daemon may not ask for it, as with two capabilities.
    #[serde(default)]
    pub name: Option<String>,
    /// True if it runs before limiter's program at the same hook: what it decides, limiter does
    /// not see.
    pub before: bool,
    /// True if it is the program of another limiter, as far as the daemon sees.
    pub limiter: bool,
    /// The pin directory of that limiter, if it is found.
    #[serde(default)]
    pub pin_dir: Option<String>,
}

impl OtherProgram {
    /// What it does to the limits, for people; none of one that limiter does not depend on.
    pub fn text(&self) -> Option<String> {
        let Self { hook, program_id, before, limiter, .. } = self;
        let name =
            self.name.as_ref().map_or_else(String::new, |name| format!(" ({})", clean(name)));
        if *limiter {
            let end = self.pin_dir.as_ref().map_or_else(
                || "`limiter detach --pin-dir` with its pins ends it".to_owned(),
                |pins| format!("`limiter detach --pin-dir {}` ends it", clean(pins)),
            );
            return Some(format!(
                "another limiter is at {hook}, too (program {program_id}): what both see is \
                 charged and counted by both; {end}"
            ));
        }
        before.then(|| {
            format!(
                "program {program_id}{name} runs before limiter at {hook}: it can let packets by, \
                 which limiter does not see then; `limiter detach` and a start with --tc-order \
                 first put limiter before it"
            )
        })
    }
}

/// The XDP program of somebody else that goes on with the packets that pass: `--then`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ThenProgram {
    /// The pin that the daemon was given.
    pub pin: String,
    /// The kernel's id of the program that is called.
    pub program_id: u32,
    /// Its name; none if it has none.
    #[serde(default)]
    pub name: Option<String>,
    /// The reason why another program is called than the one at the pin now; none if it is that
    /// one.
    #[serde(default)]
    pub error: Option<String>,
}

impl ThenProgram {
    /// What it does.
    pub fn goes_on(&self) -> String {
        let name =
            self.name.as_ref().map_or_else(String::new, |name| format!(" ({})", clean(name)));
        format!("what passes at XDP goes on in program {}{name}", self.program_id)
    }

    /// The row of `limiter status`.
    pub fn text(&self) -> String {
        let Self { pin, error, .. } = self;
        let called = self.goes_on();
        match error {
            None => format!("{called}, pinned at {}", clean(pin)),
            Some(error) => format!(
                "{called}, which is not what is pinned at {} now: {}",
                clean(pin),
                clean(error)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(before: bool, limiter: bool, name: Option<&str>) -> OtherProgram {
        let (hook, name) = ("tc in".to_owned(), name.map(str::to_owned));
        OtherProgram { hook, program_id: 7, name, before, limiter, pin_dir: None }
    }

    #[test]
    fn one_behind_limiter_is_no_news_and_one_before_it_is() {
        assert_eq!(program(false, false, Some("acl")).text(), None);
        let text = program(true, false, Some("acl\u{1b}[2J")).text().unwrap();
        assert!(text.starts_with("program 7 (acl") && text.contains("before limiter at tc in"));
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(program(true, false, None).text().unwrap().starts_with("program 7 runs"));
    }

    #[test]
    fn another_limiter_is_named_with_its_end() {
        let found = OtherProgram {
            pin_dir: Some("/sys/fs/bpf/b".to_owned()),
            ..program(false, true, Some("limiter"))
        };
        let text = found.text().unwrap();
        assert!(text.contains("`limiter detach --pin-dir /sys/fs/bpf/b`"), "{text}");
        assert!(program(true, true, None).text().unwrap().contains("by both"));
    }
}
