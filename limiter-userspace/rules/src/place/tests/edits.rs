//! Random edits: unchanged rules keep their place.

use std::fmt::Write as _;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Subject;
use crate::model::{Rule, Terms};

/// A pool of rules to choose from; `rate` varies them.
fn file(chosen: &[(usize, u8)]) -> String {
    let mut text = "replies: {unit: second, requests_per_unit: 9}
budgets:
  - {name: slow, rate_limit: {unit: second, requests_per_unit: 7}}
  - {name: a, rate_limit: {unit: second, requests_per_unit: 7}, action: {class: slow}}
  - {name: b, rate_limits: [{unit: second, requests_per_unit: 7}, {unit: second, \
                    requests_per_unit: 3, count: syns}]}
descriptors:
"
    .to_owned();
    let mut seen = BTreeSet::new();
    for (index, rate) in chosen {
        if !seen.insert(*index) {
            continue;
        }
        let limit = format!("rate_limit: {{unit: second, requests_per_unit: {}}}", rate % 4 + 1);
        let syns = limit.replace('}', ", count: syns}");
        let line = match index {
            0 => format!("{{key: remote_address, {limit}}}"),
            1 => format!("{{key: remote_address, value: 192.0.2.0/24, {syns}}}"),
            2 if *rate > 127 => format!("{{key: remote_address, value: 192.0.2.7, {syns}}}"),
            2 => format!("{{key: remote_address, value: 192.0.2.7, {limit}, action: reject}}"),
            3 => "{key: remote_address, value: 198.51.100.0/24, budget: a}".to_owned(),
            4 => format!("{{key: vlan, {limit}}}"),
            5 => format!("{{key: vlan, value: 7, {syns}, action: {{class: slow}}}}"),
            6 => "{key: vlan, value: 8, budget: b}".to_owned(),
            7 => format!(
                "{{key: destination_port, value: 22, descriptors: [{{key: remote_address, {syns}, \
                 action: {{ban: {{evidence: none}}}}}}]}}"
            ),
            8 => format!(
                "{{key: destination_port, descriptors: [{{key: remote_address, value: \
                 192.0.2.0/24, {limit}}}]}}"
            ),
            9 => format!("{{key: generic_key, value: all, {limit}}}"),
            10 => "{key: generic_key, value: all, budget: a}".to_owned(),
            11 => format!(
                "{{key: masked_remote_address, v4_prefix_mask_len: 24, {limit}, action: \
                 {{interface: eth{}}}}}",
                rate % 4
            ),
            _ => format!("{{key: dscp, value: {}, {limit}, shadow_mode: true}}", index % 64),
        };
        if (*index == 10 && seen.contains(&9)) || (*index == 9 && seen.contains(&10)) {
            continue;
        }
        writeln!(text, "  - {line}").unwrap();
    }
    if seen.is_empty() {
        text.push_str("  []\n");
    }
    text
}

/// Everything that has a record of its own: slot, record, and what it is.
fn places(maps: &Maps, set: &RuleSet) -> BTreeMap<Subject, (Terms, u32, Record)> {
    let mut places = BTreeMap::new();
    let tables = &maps.installed.tables;
    for rule in &set.rules {
        if rule.path.selector().is_none() && !matches!(rule.terms, Terms::Budget(_)) {
            let id = RuleId::new(&rule.path, &interface).unwrap();
            let slot = tables.rules[&id];
            let subject = Subject::Rule(rule.path.clone());
            places.insert(subject, (rule.terms.clone(), slot, tables.records[&slot]));
        }
    }
    for budget in &set.budgets {
        if let Some((slot, record)) = tables.budget(budget_tag(&budget.name)) {
            let subject = Subject::Budget(budget.name.clone());
            places.insert(subject, (Terms::Limits(budget.limits.clone()), slot, *record));
        }
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_did_not_change_keeps_its_place(
        steps in vec(vec((0usize..16, any::<u8>()), 0..12), 2..8),
        restarts in vec(any::<bool>(), 8),
    ) {
        let mut maps = Maps::default();
        let mut before: Option<(RuleSet, Installed)> = None;
        let mut ids = BTreeSet::new();
        for (step, restart) in steps.iter().zip(restarts) {
            let set = parse(&file(step));
            let old = before.as_ref().map(|(set, _)| places(&maps, set)).unwrap_or_default();
            let old_numbers = maps.installed.numbers().collect::<BTreeSet<u32>>();
            if restart {
                maps.installed = maps.adopted();
            }
            let in_force = maps.installed.clone();
            let plan = maps.apply(&set);
            prop_assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));

            // Nothing in force is overwritten, nor what the generation before used.
            for (slot, _) in &plan.tables.records {
                prop_assert!(!in_force.tables.records.contains_key(slot));
                prop_assert!(!in_force.tables.retired.slots.contains(slot));
            }
            for (index, _) in &plan.tables.actions {
                let index = u16::try_from(*index).unwrap();
                prop_assert!(index != 0 && !in_force.tables.actions.contains_key(&index));
                prop_assert!(!in_force.tables.retired.actions.contains_key(&index));
            }
            for index in &plan.tables.begun_budgets {
                prop_assert!(!in_force.tables.used_budgets().any(|used| used == *index));
            }
            for (index, ifindex) in &plan.tables.interfaces {
                let old = in_force.tables.interfaces.get(index);
                prop_assert!(old.is_none_or(|old| old == ifindex));
            }

            // Numbers are one space, and none is lost.
            let numbers = maps.installed.numbers().collect::<BTreeSet<u32>>();
            let own = maps.installed.tables.records.len();
            prop_assert_eq!(numbers.len(), own + maps.installed.rules.len());
            let own = |rule: &&Arc<Rule>| !matches!(rule.terms, Terms::Budget(_));
            for rule in set.rules.iter().filter(|rule| rule.path.selector().is_some()).filter(own) {
                let (old, new) = (&in_force, &maps.installed);
                let number = |of: &Installed| of.number(&rule.path, &interface);
                if let (Some(old), Some(new)) = (number(old), number(new)) {
                    prop_assert_eq!(old, new, "whichever table had {}", rule.path);
                }
            }
            let begun: BTreeSet<u32> = plan.begun.iter().copied().collect();
            let ended: BTreeSet<u32> = plan.ended.iter().copied().collect();
            prop_assert_eq!(&begun, &numbers.difference(&old_numbers).copied().collect());
            prop_assert_eq!(&ended, &old_numbers.difference(&numbers).copied().collect());

            for (subject, (terms, slot, record)) in places(&maps, &set) {
                let Some((old_terms, old_slot, old_record)) = old.get(&subject) else {
                    continue;
                };
                // The rule that all packets share may have been charged to a budget before.
                prop_assert_eq!(record.rule, old_record.rule, "{}", subject);
                prop_assert_eq!(record.budget, old_record.budget, "{}", subject);
                if terms == *old_terms {
                    prop_assert_eq!(slot, *old_slot, "{}", subject);
                    prop_assert_eq!(&record, old_record, "{}", subject);
                }
            }
            for (form, id) in &maps.installed.tables.ids {
                match in_force.tables.ids.get(form) {
                    Some(old) => prop_assert_eq!(id, old),
                    None => prop_assert!(ids.insert(*id), "{} was used before", id),
                }
            }
            before = Some((set, maps.installed.clone()));
        }
    }
}
