//! The ratios that have a budget.

use super::cases::{CAPTURES, CHARGED, KEYED, SHARED_KEYS};
use super::run::{Results, Row};
use crate::figure::{Bound, Figure};

pub(super) fn of(results: &Results) -> Vec<Figure> {
    let row = |group: &str, name: &str| find(results, group, name);
    let mut figures = Vec::new();
    for (name, budget, held) in [
        ("1 known, over its", 1.3, 1.1),
        ("10000 known, over its", 1.3, 1.25),
        ("1 known, within", 1.5, 1.5),
        ("10000 known, within", 1.5, 1.6),
    ] {
        figures.extend(least(row("Sources", name), budget, held));
    }
    // Of two rows of the same run: each is limiter alone.
    for (store, alone, among) in [("", 6.2, 4.6), ("in lines: ", 5.6, 4.4)] {
        let new = row("New sources", &format!("{store}each packet another"));
        for (name, held) in [("a known one", alone), ("known ones that fill the table", among)] {
            let known = row("New sources", &format!("{store}{name}"));
            if let (Some(known), Some(new)) = (known, new) {
                let what = format!("{}, over {name}", new.name);
                figures.push(at_most(what, new.over(known), 1.2, held));
            }
        }
    }
    // The best that a budget can ask for.
    let (known, new) = (row("New sources", "a known one"), row("New sources", "each packet"));
    if let (Some(known), Some(new)) = (known, new) {
        let what = format!("the least program: {}, over a known one", new.name);
        figures.push(unbudgeted(what, new.least_over(known), 5.0));
    }
    for (name, held) in [
        ("1 known, over", 1.3),
        ("10000 known, over", 2.0),
        ("1000000 known, over", 0.7),
        ("1 known, within", 1.3),
        ("10000 known, within", 2.0),
        ("1000000 known, within", 0.8),
    ] {
        if let (Some(hash), Some(lines)) =
            (row("Sources", name), row("Sources", &format!("in lines: {name}")))
        {
            let what = format!("{}, over hash maps", lines.name);
            figures.push(unbudgeted(what, lines.over(hash), held));
        }
    }
    figures.extend(many_rules(results));
    figures.extend(keyed(results));
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
    let reported = |name: &str| row("Events", name);
    for name in ["20 drops", "1,000 reported"] {
        if let (Some(none), Some(some)) = (reported("none"), reported(name)) {
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

/// The first row of a group whose name begins so.
fn find<'a>(results: &'a Results, group: &str, name: &str) -> Option<&'a Row> {
    results.rows.iter().find(|row| row.group == group && row.name.starts_with(name))
}

/// Rules by port and source.
fn keyed(results: &Results) -> Vec<Figure> {
    let row = |group: &str, name: &str| find(results, group, name);
    let mut figures = Vec::new();
    for (store, held) in [("", [2.2, 3.2, 7.2, 13.0]), ("in lines: ", [2.1, 3.0, 7.2, 12.6])] {
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
    for (name, hash, lines, by_hand) in [
        ("one rule", 2.6, 2.7, 1.7),
        ("four rules", 2.7, 3.2, 3.4),
        ("eight rules", 2.7, 3.3, 5.4),
        ("IPv6: one rule", 3.2, 3.2, 1.7),
        ("IPv6: four rules", 3.8, 3.9, 3.4),
        ("IPv6: eight rules", 5.2, 5.2, 5.4),
    ] {
        for (store, held) in [("", hash), ("in lines: ", lines)] {
            if let Some(row) = row(CHARGED, &format!("{store}{name}")) {
                let what = format!("Keyed rules: {}, over charging by hand", row.name);
                figures.push(unbudgeted(what, row.ratio, held));
            }
        }
        if let (Some(one), Some(hand)) = (one, row(CHARGED, name)) {
            let what = format!("Keyed rules: {name}, charged by hand, over the least");
            figures.push(unbudgeted(what, hand.least_over(one), by_hand));
        }
    }
    let two = row(KEYED, "one rule of two");
    if let (Some(one), Some(two)) = (one, two) {
        figures.push(at_most(
            "two limits in a rule, over one".to_owned(),
            two.over(one),
            1.25,
            1.5,
        ));
    }
    figures
}

fn many_rules(results: &Results) -> Vec<Figure> {
    let of =
        |count: &str| results.rows.iter().find(|row| row.group == "Rules" && row.name == count);
    let mut figures = Vec::new();
    for (count, budget, held) in [("10000", 1.25, 1.45), ("100000", 1.6, 1.4)] {
        if let (Some(one), Some(many)) = (of("1"), of(count)) {
            figures.push(at_most(format!("{count} rules, over one"), many.over(one), budget, held));
        }
    }
    figures
}

/// A row over the least program that ran beside it.
fn least(row: Option<&Row>, budget: f64, held: f64) -> Option<Figure> {
    let row = row?;
    let what = format!("{}: {}, over the least", row.group, row.name);
    Some(at_most(what, row.ratio, budget, held))
}

fn unbudgeted(what: String, ratio: crate::spread::Spread, held: f64) -> Figure {
    Figure { what, ratio, budget: None, held: Bound::AtMost(held) }
}

fn at_most(what: String, ratio: crate::spread::Spread, budget: f64, held: f64) -> Figure {
    Figure { what, ratio, budget: Some(Bound::AtMost(budget)), held: Bound::AtMost(held) }
}
