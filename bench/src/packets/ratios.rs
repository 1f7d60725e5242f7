//! The ratios that have a budget.

use super::cases::{CAPTURES, KEYED, SHARED_KEYS};
use super::run::{Results, Row};
use crate::figure::{Bound, Figure};

/// All that were measured.
pub(super) fn of(results: &Results) -> Vec<Figure> {
    let row = |group: &str, name: &str| {
        results.rows.iter().find(|row| row.group == group && row.name.starts_with(name))
    };
    let least = |row: Option<&Row>, budget: f64, held: f64| {
        let row = row?;
        let what = format!("{}: {}, over the least", row.group, row.name);
        Some(at_most(what, row.ratio, budget, held))
    };
    let mut figures = Vec::new();
    for (name, budget, held) in [
        ("1 known, over its", 1.3, 1.3),
        ("10000 known, over its", 1.3, 1.4),
        ("1 known, within", 1.5, 1.5),
        ("10000 known, within", 1.5, 1.6),
    ] {
        figures.extend(least(row("Sources", name), budget, held));
    }
    // Of two rows of the same run: each is limiter alone.
    for (store, alone, among) in [("", 4.0, 3.2), ("in lines: ", 4.4, 3.8)] {
        let new = row("New sources", &format!("{store}each packet another"));
        for (name, held) in [("a known one", alone), ("known ones that fill the table", among)] {
            let known = row("New sources", &format!("{store}{name}"));
            if let (Some(known), Some(new)) = (known, new) {
                let what = format!("{}, over {name}", new.name);
                figures.push(at_most(what, new.over(known), 1.2, held));
            }
        }
    }
    for (name, held) in [
        ("1 known, over", 1.1),
        ("10000 known, over", 1.2),
        ("1000000 known, over", 0.8),
        ("1 known, within", 1.2),
        ("10000 known, within", 1.0),
        ("1000000 known, within", 0.8),
    ] {
        if let (Some(hash), Some(lines)) =
            (row("Sources", name), row("Sources", &format!("in lines: {name}")))
        {
            let what = format!("{}, over hash maps", lines.name);
            figures.push(Figure {
                what,
                ratio: lines.over(hash),
                budget: None,
                held: Bound::AtMost(held),
            });
        }
    }
    figures.extend(many_rules(results));
    for (store, held) in [("", [2.6, 3.2, 7.6, 13.0]), ("in lines: ", [2.5, 3.0, 7.2, 12.6])] {
        for ((name, budget), held) in [
            ("one rule, 1 known, over", 1.5),
            ("one rule, 1 known, within", 1.5),
            ("four rules", 2.5),
            ("eight rules", 4.0),
        ]
        .into_iter()
        .zip(held)
        {
            figures.extend(least(row(KEYED, &format!("{store}{name}")), budget, held));
        }
    }
    let one = row(KEYED, "one rule, 1 known, within");
    let two = row(KEYED, "one rule of two");
    if let (Some(one), Some(two)) = (one, two) {
        figures.push(at_most(
            "two limits in a rule, over one".to_owned(),
            two.over(one),
            1.25,
            1.5,
        ));
    }
    let shared = |scope: &str| row("Shared budgets", &format!("`scope: {scope}`"));
    if let (Some(node), Some(cluster)) = (shared("node"), shared("cluster")) {
        let what = format!("a budget with {}, over {}", cluster.name, node.name);
        figures.push(at_most(what, cluster.over(node), 1.15, 1.25));
    }
    let keys: Vec<_> = results.rows.iter().filter(|row| row.group == SHARED_KEYS).collect();
    for pair in keys.chunks_exact(2) {
        if let [node, cluster] = pair {
            let what = format!("{}, over `node`", cluster.name);
            // Alone, a rule by source is in the source table.
            let held = if node.name.starts_with("source") { 2.0 } else { 1.25 };
            figures.push(at_most(what, cluster.over(node), 1.15, held));
        }
    }
    let told = |name: &str| row("Events", name);
    for name in ["20 drops", "1,000 told"] {
        if let (Some(none), Some(some)) = (told("none"), told(name)) {
            figures.push(at_most(format!("{}, over none", some.name), some.over(none), 1.1, 1.3));
        }
    }
    let captures: Vec<_> = results.rows.iter().filter(|row| row.group == CAPTURES).collect();
    for rows in captures.chunks_exact(3) {
        // Of sources that are observed there are few: one in 64, unless it is asked otherwise.
        if let [none, others, _observed] = rows {
            let what = format!("{}, over none", others.name);
            figures.push(at_most(what, others.over(none), 1.1, 1.4));
        }
    }
    figures
}

/// Many rules, over one.
fn many_rules(results: &Results) -> Vec<Figure> {
    let of =
        |count: &str| results.rows.iter().find(|row| row.group == "Rules" && row.name == count);
    let mut figures = Vec::new();
    for (count, budget, held) in [("10000", 1.25, 1.5), ("100000", 1.6, 1.4)] {
        if let (Some(one), Some(many)) = (of("1"), of(count)) {
            figures.push(at_most(format!("{count} rules, over one"), many.over(one), budget, held));
        }
    }
    figures
}

fn at_most(what: String, ratio: crate::spread::Spread, budget: f64, held: f64) -> Figure {
    Figure { what, ratio, budget: Some(Bound::AtMost(budget)), held: Bound::AtMost(held) }
}
