//! `limiter bans` and `unban`.

use std::fmt::Write as _;

use super::render::{Render, push, table};
use crate::control::api::bans::{Bans, Unbanned};

impl Render for Unbanned {
    fn render(&self, text: &mut String) {
        let sources = if self.forgotten == 1 { "source" } else { "sources" };
        let _: std::fmt::Result = writeln!(text, "{} {sources} forgotten", self.forgotten);
    }
}

impl Render for Bans {
    fn render(&self, text: &mut String) {
        if self.entries.is_empty() {
            text.push_str("nobody is banned\n");
        } else {
            let mut table = table(&["SOURCE", ">ENDS IN", ">BANS", "RULE"]);
            for entry in &self.entries {
                table.add_row([
                    entry.source.clone(),
                    format!("{} s", entry.ends_in_seconds),
                    entry.bans.to_string(),
                    entry.rule.clone().unwrap_or_else(|| "(removed rules)".to_owned()),
                ]);
            }
            push(text, &table);
        }
        if self.watched > 0 {
            let _: std::fmt::Result =
                writeln!(text, "{} more with strikes or earlier bans", self.watched);
        }
    }
}
