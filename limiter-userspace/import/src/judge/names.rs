//! Names of rules in the rule file, and of interfaces.

use limiter_rules::model::RESERVED;
use limiter_text::plain::{clean, is_plain};

use super::Judge;
use crate::firewall::Firewall;

impl Judge<'_> {
    /// Name of a rule in the rule file, from its comment and its place.
    pub(super) fn name(&self, rule: usize) -> String {
        let found = self.firewall.rules.get(rule);
        let place = found.map_or_else(String::new, |rule| rule.place.clone());
        let comment = found.and_then(|rule| rule.name.as_ref()).map(|name| name.trim());
        let name = match comment {
            Some(comment) if !comment.is_empty() => {
                let comment: String = comment.chars().take(60).collect();
                format!("{comment} ({place})")
            }
            _ => place,
        };
        let name = clean(&name);
        if name.starts_with(RESERVED) { format!("there: {name}") } else { name }
    }

    pub(super) fn place(&self, rule: usize) -> String {
        place(self.firewall, rule)
    }
}

/// True for a name that both the kernel and rule files accept for an interface.
pub(super) fn is_interface(name: &str) -> bool {
    let bad = |c: char| c == '/' || c.is_whitespace() || !is_plain(c);
    !name.is_empty() && name.len() < 16 && !name.contains(bad)
}

pub(super) fn place(firewall: &Firewall, rule: usize) -> String {
    firewall.rules.get(rule).map_or_else(String::new, |rule| rule.place.clone())
}
