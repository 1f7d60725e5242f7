//! Texts of other programs, and their translations.

mod chains;
mod firewalls;
mod hostile;
mod meters;
mod pairs;
mod published;
mod silent;
mod silent_nft;
mod spellings;
mod spellings_nft;
mod texts;
mod translated;

use limiter_rules::model::limits_text;
use limiter_rules::{Rule, RuleFile, Terms};

use super::{Format, Imported, Options, Outcome, import};

fn imported(format: Format, text: &str) -> Imported {
    let options = Options { format: Some(format), ..Options::default() };
    import(text.as_bytes(), &options).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Rules of iptables in the chain INPUT, as iptables-save prints them.
fn iptables(rules: &str) -> Imported {
    let text = format!("*filter\n:INPUT ACCEPT [0:0]\n{rules}\nCOMMIT\n");
    imported(Format::Iptables, &text)
}

/// Rules of nft in the chain input of inet, as expressions.
fn nft(rules: &[&str]) -> Imported {
    let mut objects = vec![
        r#"{"chain": {"family": "inet", "table": "f", "name": "input", "type": "filter",
            "hook": "input", "prio": 0, "policy": "accept"}}"#
            .to_owned(),
    ];
    for (index, rule) in rules.iter().enumerate() {
        objects.push(format!(
            r#"{{"rule": {{"family": "inet", "table": "f", "chain": "input", "handle": {},
                "expr": {rule}}}}}"#,
            index + 1
        ));
    }
    imported(Format::Nft, &format!(r#"{{"nftables": [{}]}}"#, objects.join(", ")))
}

/// The text without comments.
fn bare(imported: &Imported) -> String {
    let lines = imported.text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
}

/// The reason why the last rule was not translated.
fn refusal(imported: &Imported) -> String {
    let last = imported.rules.last().expect("a rule");
    assert_eq!(last.outcome, Outcome::NotTranslated, "{}", imported.text);
    last.reason.clone().expect("a reason")
}

/// Rules in one line each.
fn rules(imported: &Imported) -> Vec<String> {
    let file = RuleFile::parse("x", imported.text.as_bytes(), 1522)
        .unwrap_or_else(|error| panic!("{error}\n{}", imported.text));
    let budgets = &file.rules.budgets;
    let one = |rule: &Rule| {
        let terms = match &rule.terms {
            Terms::Unlimited => "unlimited".to_owned(),
            Terms::Limits(limits) => limits_text(limits),
            Terms::Budget(name) => {
                let budget = budgets.iter().find(|budget| budget.name == *name).unwrap();
                format!("together {}", limits_text(&budget.limits))
            }
        };
        format!("{}: {terms}", rule.path)
    };
    file.rules.rules.iter().map(|rule| one(rule)).collect()
}

/// Checks the translation of the last of some rules.
fn assert_made(imported: &Imported, expected: Result<&[&str], &str>, of: &str) {
    match expected {
        Ok(expected) => assert_eq!(rules(imported), expected, "{of}\n{}", imported.text),
        Err(expected) => {
            let reason = refusal(imported);
            assert!(reason.contains(expected), "{of}: {reason}");
        }
    }
}
