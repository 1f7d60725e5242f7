//! Texts of other programs, and what is made of them.

mod chains;
mod hostile;
mod meters;
mod spellings;
mod texts;

use super::{Format, Imported, Options, Outcome, import};

/// Imports a text of a format.
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
    lines.filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

/// The reason why the last rule was not translated.
fn refusal(imported: &Imported) -> String {
    let last = imported.rules.last().expect("a rule");
    assert_eq!(last.outcome, Outcome::NotTranslated, "{}", imported.text);
    last.reason.clone().expect("a reason")
}
