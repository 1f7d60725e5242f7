//! Lines of a page, hidden from its readers, that say what rules did with the traffic before them:
//! ``<!-- tried: ... `NAME` passed 5, dropped 15. -->``

use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The begin of such a line.
pub const TRIED: &str = "<!-- tried: ";

/// Packets that a rule or budget has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Name of the rule or budget.
    pub name: String,
    /// Packets that passed.
    pub passed: RangeInclusive<u64>,
    /// Packets that were dropped.
    pub dropped: RangeInclusive<u64>,
}

impl Counted {
    /// All that a line says; at least one.
    ///
    /// # Errors
    ///
    /// When it says nothing that can be checked.
    pub fn all(line: &str) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        let parts: Vec<&str> = line.split('`').collect();
        for pair in parts.windows(2).skip(1).step_by(2) {
            let [name, said] = pair else { continue };
            let Some(said) = said.strip_prefix(" passed ") else { continue };
            let (passed, said) = range(said).with_context(|| format!("{name}: {said}"))?;
            let said =
                said.strip_prefix(", dropped ").with_context(|| format!("{name}: {said}"))?;
            let (dropped, _) = range(said).with_context(|| format!("{name}: {said}"))?;
            all.push(Self { name: (*name).to_owned(), passed, dropped });
        }
        ensure!(!all.is_empty(), "not `NAME` passed NUMBER, dropped NUMBER: {line}");
        Ok(all)
    }

    /// Difference from what `limiter list --output json` has; none if it is so.
    ///
    /// # Errors
    ///
    /// When that is no answer of `list`.
    pub fn differs(&self, list: &str) -> Result<Option<String>> {
        let list: Value = serde_json::from_str(list).with_context(|| list.to_owned())?;
        let entries = ["limits", "budgets"].into_iter();
        let entries = entries.filter_map(|kind| list[kind].as_array()).flatten();
        let called = |entry: &&Value| {
            entry["name"] == *self.name || entry["name"].is_null() && entry["source"] == *self.name
        };
        let (mut passed, mut dropped, mut rules) = (0, 0, 0);
        for entry in entries.filter(called) {
            let packets = |key: &str| entry[key]["packets"].as_u64().context("no count");
            passed += packets("passed")?;
            dropped += packets("dropped")?;
            rules += 1;
        }
        if rules == 0 {
            return Ok(Some(format!("no rule is called {}", self.name)));
        }
        let same = self.passed.contains(&passed) && self.dropped.contains(&dropped);
        Ok((!same).then(|| format!("{} passed {passed}, dropped {dropped}", self.name)))
    }
}

/// A number, or `NUMBER to NUMBER`, and what is behind it.
fn range(text: &str) -> Result<(RangeInclusive<u64>, &str)> {
    let (first, rest) = number(text)?;
    let Some(behind) = rest.strip_prefix(" to ") else { return Ok((first..=first, rest)) };
    let (last, rest) = number(behind)?;
    ensure!(first < last, "{first} to {last}");
    Ok((first..=last, rest))
}

fn number(text: &str) -> Result<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    // A comma behind the number is none of it.
    let digits = text[..end].trim_end_matches(',');
    let number = digits.replace(',', "").parse().with_context(|| format!("no number: {text}"))?;
    Ok((number, &text[digits.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"limits": [
        {"name": "ssh", "source": "x", "passed": {"packets": 5}, "dropped": {"packets": 15}},
        {"name": null, "source": "every source", "passed": {"packets": 7}, "dropped": {"packets": 0}},
        {"name": "two", "source": "a", "passed": {"packets": 1}, "dropped": {"packets": 2}},
        {"name": "two", "source": "b", "passed": {"packets": 10}, "dropped": {"packets": 20}}],
        "budgets": [{"name": null, "source": "b", "passed": {"packets": 1000}, "dropped": {"packets": 1}}]}"#;

    fn differ(line: &str) -> Vec<String> {
        let all = Counted::all(line).unwrap();
        all.iter().filter_map(|counted| counted.differs(LIST).unwrap()).collect()
    }

    #[test]
    fn what_is_so_is_taken_and_all_else_is_not() {
        for line in [
            "20 SYNs at once: `ssh` passed 5, dropped 15.",
            "x `y` z: `every source` passed 7, dropped 0, and `ssh` passed 4 to 5, dropped 15 to \
             16.",
            "both rules: `two` passed 11, dropped 22",
            "`b` passed 1,000, dropped 1.",
        ] {
            assert_eq!(differ(line), [""; 0], "{line}");
        }
        for line in [
            "`ssh` passed 6, dropped 15",
            "`ssh` passed 5, dropped 0 to 14",
            "`every source` passed 7, dropped 0; `two` passed 1, dropped 2",
            "`nobody` passed 0, dropped 0",
        ] {
            assert_eq!(differ(line).len(), 1, "{line}");
        }
    }

    #[test]
    fn a_line_that_says_nothing_is_an_error() {
        for line in
            ["", "`ssh` drops", "`ssh` passed some, dropped 1", "`ssh` passed 5", "5 passed"]
        {
            assert!(Counted::all(line).is_err(), "{line}");
        }
        assert!(Counted::all("`ssh` passed 5 to 4, dropped 0").is_err());
    }
}
