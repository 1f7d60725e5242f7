//! Plans of whole rule files.

mod direction;
mod edits;
mod full;
mod shared;
mod specific;

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::wire::{
    Action, ActionKind, Algorithm, Count, Kind, LimitSpec, MARK_ECN, MAX_SHAPES, Record, Role,
    Shape, Table, TableKey, field,
};

use super::*;
use crate::RuleFile;
use crate::compile::{BANS, REPLIES};
use crate::model::{Direction, Path};

/// The maps that plans write, and nothing else.
#[derive(Debug, Default)]
struct Maps {
    generation: u64,
    /// Number of nodes, if there is a cluster.
    cluster: Option<u64>,
    limits: BTreeMap<u32, Limit>,
    records: BTreeMap<u32, Record>,
    actions: BTreeMap<u16, Action>,
    trie: Vec<(TriePrefix, u32)>,
    held: HeldTables,
    installed: Installed,
}

const CAPACITY: u32 = 1024;

fn interface(name: &str) -> Option<u32> {
    name.strip_prefix("eth")?.parse::<u32>().ok().map(|number| number + 2)
}

fn environment() -> Environment<'static> {
    Environment {
        max_frame: 1522,
        interface_index: &interface,
        cpus: 4,
        cluster: None,
        in_at_tc: None,
    }
}

fn parse(text: &str) -> RuleSet {
    RuleFile::parse("r.yaml", text.as_bytes(), 1522).unwrap_or_else(|e| panic!("{e}\n{text}")).rules
}

impl Maps {
    fn plan(&self, set: &RuleSet) -> Result<Plan, PlanError> {
        self.installed.plan(
            set,
            self.generation + 1,
            CAPACITY,
            &Environment { cluster: self.cluster, ..environment() },
        )
    }

    /// Puts a rule set in force; gives the plan.
    fn apply(&mut self, set: &RuleSet) -> Plan {
        let plan = self.plan(set).unwrap_or_else(|error| panic!("{error}\n{set:?}"));
        self.generation += 1;
        self.limits.extend(plan.limits.iter().copied());
        self.records.extend(plan.tables.records.iter().copied());
        let actions = plan.tables.actions.iter();
        self.actions
            .extend(actions.map(|(index, action)| (u16::try_from(*index).unwrap(), *action)));
        self.trie.clone_from(&plan.trie);
        self.held = HeldTables {
            tables: plan.tables.tables.clone(),
            trie: plan.tables.trie.clone(),
            replies: plan.tables.replies,
            bans: plan.tables.bans,
            interfaces: plan.tables.interfaces.clone(),
        };
        self.installed = plan.installed.clone();
        plan
    }

    fn apply_text(&mut self, text: &str) -> Plan {
        self.apply(&parse(text))
    }

    /// State that a daemon finds after a restart.
    fn adopted(&self) -> Installed {
        // The kernel has no such index: an adoption that asks for it fails.
        let there = |slot: u32| assert_ne!(slot, Slot::NONE.index(), "a hole is no slot");
        let limit = |slot| {
            there(slot);
            self.limits.get(&slot).copied()
        };
        let record = |slot| {
            there(slot);
            self.records.get(&slot).copied()
        };
        Installed::from_maps(&self.trie, limit)
            .with_tables(&self.held, record, |index| self.actions.get(&index).copied())
    }

    /// The record of the only keyed rule, or of the rule with this path.
    fn record(&self, set: &RuleSet, path: &str) -> Record {
        let path: Path = set
            .rules
            .iter()
            .map(|rule| rule.path.clone())
            .find(|candidate| candidate.to_string() == path)
            .unwrap_or_else(|| panic!("no {path}"));
        *self.installed.tables.record(&RuleId::new(&path, &interface).unwrap()).unwrap()
    }

    /// The record of a rule by source that is in a keyed table.
    fn keyed_source(&self, source: &str) -> Option<Record> {
        let selector = match source {
            "" => Selector::Every,
            text => crate::source_text::parse(text).unwrap(),
        };
        self.installed.tables.record(&RuleId::of_source(&selector)).copied()
    }

    /// Slot that the trie of sources has for a prefix; `None` if the rule is elsewhere.
    fn trie_slot(&self, source: &str) -> Option<u32> {
        let prefix = crate::source_text::parse(source).unwrap().trie_prefixes()[0];
        let found = self.trie.iter().find(|(at, _)| *at == prefix)?.1;
        (found != Slot::NONE.index()).then_some(found)
    }

    fn source(&self, source: &str) -> InstalledRule {
        let selector = match source {
            "" => Selector::Every,
            text => crate::source_text::parse(text).unwrap(),
        };
        self.installed.rules[&selector]
    }
}

/// As [`Installed`] after a restart: nobody knows what was retired, nor where the circle stands.
fn forgetful(installed: &Installed) -> Installed {
    let mut known = installed.clone();
    known.retired_slots.clear();
    known.next_slot = 0;
    known.tables.retired = Retired::default();
    known
}

const LIMIT: &str = "rate_limit: {unit: second, requests_per_unit: 10}";

#[test]
fn a_table_has_its_keys_masks_and_shapes() {
    let mut maps = Maps::default();
    let set = parse(&format!(
        "descriptors:
  - {{key: destination_port, value: 22, descriptors: [{{key: remote_address, {LIMIT}}}]}}
  - {{key: destination_port, descriptors: [{{key: remote_address, value: 192.0.2.0/24, {LIMIT}}}]}}
  - {{key: masked_remote_address, v4_prefix_mask_len: 24, {LIMIT}}}
"
    ));
    let plan = maps.apply(&set);
    let tables = &plan.tables.tables;
    assert_eq!(plan.tables.header.tables(), 2);
    let (table, shapes) = &tables[0];
    let fields = field::DESTINATION_PORT | field::SOURCE | field::V4 | field::V6 | field::IN;
    assert_eq!(table.fields, fields);
    let masks: [[u8; 16]; 2] = table.source_masks.map(bytemuck::cast);
    assert_eq!(masks[0], [0xff; 16]);
    assert_eq!(masks[1][..8], [0xff; 8]);
    assert_eq!(masks[1][8..], [0; 8]);
    assert_eq!((table.id, table.shapes, shapes.len()), (8, 2, 2));
    assert_eq!(shapes[0].mask.destination_port, u16::MAX);
    assert_eq!(shapes[1].mask.destination_port, 0);
    assert_eq!(shapes[0].mask.version, u8::MAX);
    let (table, _) = &tables[1];
    assert_eq!(table.fields, field::SOURCE | field::V4 | field::IN);
    let masks: [[u8; 16]; 2] = table.source_masks.map(bytemuck::cast);
    assert_eq!((masks[0][14], masks[0][15], masks[1]), (0xff, 0, [0; 16]));

    // The port for both families, and one prefix.
    let of_first: Vec<_> =
        plan.tables.trie.iter().filter(|(key, ..)| key.table / MAX_SHAPES == 0).collect();
    assert_eq!(of_first.len(), 3);
    let lengths: BTreeSet<_> = of_first
        .iter()
        .map(|(key, length, _)| (key.version, key.destination_port, *length))
        .collect();
    assert_eq!(lengths, BTreeSet::from([(4, 22, 416), (6, 22, 320), (4, 0, 320 + 96 + 24)]));
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}

/// Packets with other bits are not in the table: no bucket is looked for, and none is made.
#[test]
fn a_table_knows_what_all_of_its_rules_agree_on() {
    let agreed = |keys: &[&str]| {
        let mut maps = Maps::default();
        let rule = |key: &&str| {
            format!("  - {{key: {key}, descriptors: [{{key: remote_address, {LIMIT}}}]}}\n")
        };
        let rules: String = keys.iter().map(rule).collect();
        let plan = maps.apply(&parse(&format!("descriptors:\n{rules}")));
        let (table, _) = &plan.tables.tables[0];
        let [first, second, third] = table.agreed;
        assert_eq!(first, 0, "{keys:?}");
        assert!(!plan.tables.header.has_sources());
        let key = |third| {
            let [_, _, _, rest @ ..]: [u64; 7] = bytemuck::cast(TableKey::default());
            let [a, b, c, d] = rest;
            let key: TableKey = bytemuck::cast([0, second, third, a, b, c, d]);
            key.destination_port
        };
        (key(third), key(table.agreed_values[2]))
    };
    assert_eq!(agreed(&["destination_port, value: 22"]), (u16::MAX, 22));
    // They differ in three bits.
    assert_eq!(
        agreed(&["destination_port, value: 22", "destination_port, value: 80"]),
        (!0b100_0110, 0b001_0000)
    );
    assert_eq!(agreed(&["destination_port, value: 22", "destination_port"]), (0, 0));
    // The class of a range takes the place of the value only once there is a key.
    assert_eq!(agreed(&["destination_port, value: 80-90"]), (0, 0));
}

/// Every table of prefixes has holes where a rule of the other one is inside.
#[test]
fn a_source_rule_of_more_than_a_token_bucket_is_wholly_in_a_keyed_table() {
    let mut maps = Maps::default();
    let text = "descriptors:
  - key: remote_address
    rate_limits:
      - {unit: second, requests_per_unit: 1000, burst: 100}
      - {unit: second, requests_per_unit: 1250000, count: bytes}
      - {unit: second, requests_per_unit: 50, count: syns}
      - {unit: second, requests_per_unit: 100, count: flows}
    action: reject
  - key: remote_address
    value: 192.0.2.0/24
    rate_limit: {unit: second, requests_per_unit: 50, count: syns}
    shadow_mode: true
  - key: remote_address
    value: 192.0.2.7
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: remote_address
    value: 192.0.2.8
    rate_limit: {unlimited: true}
  - key: remote_address
    value: 198.51.100.0/24
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: remote_address
    value: 198.51.100.7
    rate_limit: {unit: second, requests_per_unit: 5}
    on_daemon_loss: shadow
";
    let plan = maps.apply_text(text);
    let in_source_table: Vec<String> =
        maps.installed.rules.keys().map(Selector::to_string).collect();
    assert_eq!(in_source_table, ["192.0.2.7", "192.0.2.8", "198.51.100.0/24"]);
    let every = maps.keyed_source("").unwrap();
    assert_eq!((every.kind, every.count), (Kind::Limited as u8, 4));
    assert_eq!(maps.actions[&every.action].kind(), ActionKind::Reject);
    let counts: Vec<_> = every.limits.iter().map(LimitSpec::counts).collect();
    assert_eq!(counts, [Count::Packets, Count::Bytes, Count::Syns, Count::Flows]);
    assert!(maps.keyed_source("192.0.2.0/24").unwrap().is_shadow(false));
    assert!(maps.keyed_source("198.51.100.7").unwrap().is_shadow(true));

    // Whatever is inside a rule of the other table is a hole there.
    let holes: Vec<u32> = plan
        .tables
        .trie
        .iter()
        .filter(|entry| entry.2.slot() == Slot::NONE.index())
        .map(|entry| entry.1)
        .collect();
    assert_eq!(holes.len(), 3, "192.0.2.7, 192.0.2.8 and 198.51.100.0/24");
    for source in ["192.0.2.7", "192.0.2.8", "198.51.100.0/24"] {
        assert!(
            maps.keyed_source(source).is_none() && maps.trie_slot(source).is_some(),
            "{source}"
        );
    }
    assert_eq!(maps.trie_slot("198.51.100.7"), None);
    assert_eq!(maps.trie.len(), 4, "no rule of the source table is around 192.0.2.0/24");
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));

    // A rule keeps its number, whichever table it is in.
    let number = |maps: &Maps, source: &str| {
        let selector = crate::source_text::parse(source).unwrap();
        maps.installed.number(&Path::of_source(&selector), &interface).unwrap()
    };
    let before = [number(&maps, "198.51.100.0/24"), number(&maps, "198.51.100.7")];
    let plan = maps.apply_text(
        &text
            .replace(
                "198.51.100.0/24\n    rate_limit: {",
                "198.51.100.0/24\n    rate_limit: {count: syns, ",
            )
            .replace("    on_daemon_loss: shadow\n", ""),
    );
    assert_eq!(before, [number(&maps, "198.51.100.0/24"), number(&maps, "198.51.100.7")]);
    assert_eq!((plan.begun, plan.ended), (vec![], vec![]));
    assert!(maps.keyed_source("198.51.100.0/24").is_some());
    assert!(maps.keyed_source("198.51.100.7").is_none());
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}

#[test]
fn a_hole_for_a_whole_family_is_for_that_one() {
    let mut maps = Maps::default();
    maps.apply_text(
        "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: remote_address, value: \"::/0\", rate_limit: {unit: second, requests_per_unit: 5, count: \
         syns}}
",
    );
    assert_eq!((maps.trie_slot("::/0"), maps.trie.len()), (None, 2));
    assert_eq!(maps.trie_slot("0.0.0.0/0"), Some(maps.source("").slot));
    let adopted = maps.adopted();
    let rules: Vec<&InstalledRule> = adopted.rules.values().collect();
    assert_eq!(rules, [&maps.source("")]);
}

#[test]
fn simple_source_rules_need_no_table() {
    let mut maps = Maps::default();
    let plan = maps.apply_text(&format!(
        "descriptors: [{{key: remote_address, {LIMIT}, action: {{mark: {{ecn: true}}}}}}]\n"
    ));
    assert_eq!((plan.tables.tables.len(), plan.tables.records.len()), (0, 0));
    let action = maps.actions[&maps.source("").limit.action];
    assert_eq!((action.kind(), action.dscp), (ActionKind::Mark, MARK_ECN));
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}

const BUDGETS: &str = "replies: {unit: second, requests_per_unit: 100}
budgets:
  - {name: slow, rate_limit: {unit: second, requests_per_unit: 1}}
  - {name: shared, rate_limit: {unit: second, requests_per_unit: 5}, action: {class: slow}}
  - {name: idle, rate_limit: {unit: second, requests_per_unit: 5}}
descriptors:
  - {key: remote_address, value: [192.0.2.0/24, \"2001:db8::/48\"], budget: shared}
  - {key: vlan, value: 7, budget: shared}
  - {key: vlan, value: 8, rate_limit: {unit: second, requests_per_unit: 5}, action: {ban: {}}}
  - {key: generic_key, value: all, rate_limit: {unit: second, requests_per_unit: 5}}
";

#[test]
fn rules_of_a_budget_share_its_record() {
    let mut maps = Maps::default();
    let set = parse(BUDGETS);
    let plan = maps.apply(&set);
    let shared = maps.keyed_source("192.0.2.0/24").unwrap();
    assert_eq!(Some(shared), maps.keyed_source("2001:db8::/48"));
    assert_eq!(shared, maps.record(&set, "vlan=7"));
    assert_eq!(shared.budget_tag, budget_tag("shared"));
    assert_ne!(shared.budget, 0);
    // The budget counts for its rules, whatever their keys are.
    assert!(maps.installed.rules.is_empty());

    let class = maps.actions[&shared.action];
    assert_eq!(class.kind(), ActionKind::Class);
    assert_eq!(maps.records[&class.target].budget_tag, budget_tag("slow"));
    assert!(maps.installed.tables.budget(budget_tag("idle")).is_none());

    let word = |word: u64| maps.records[&u32::try_from(word - 1).unwrap()];
    assert_eq!(word(plan.tables.replies).budget_tag, budget_tag(REPLIES));
    assert_eq!(word(plan.tables.bans).budget_tag, budget_tag(BANS));
    assert!(plan.tables.keeps_bans);
    let of_all = plan.tables.tables.iter().find(|(table, _)| table.shapes == 0).unwrap().0;
    assert_eq!(of_all.fields, field::V4 | field::V6 | field::IN);
    assert_eq!(maps.records[&of_all.fixed].budget_tag, budget_tag(everything(Direction::In)));
    let mut begun = plan.tables.begun_budgets.clone();
    begun.sort_unstable();
    assert_eq!(begun, [0, 1, 2, 3, 4]);
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}

#[test]
fn a_changed_class_changes_what_leads_to_it() {
    let mut maps = Maps::default();
    maps.apply_text(BUDGETS);
    let before = maps.installed.tables.budget(budget_tag("shared")).map(|(s, r)| (s, *r)).unwrap();
    let plan =
        maps.apply_text(&BUDGETS.replacen("requests_per_unit: 1}", "requests_per_unit: 2}", 1));
    let after = maps.installed.tables.budget(budget_tag("shared")).map(|(s, r)| (s, *r)).unwrap();
    assert_ne!((before.0, before.1.action), (after.0, after.1.action));
    assert_eq!((before.1.rule, before.1.budget), (after.1.rule, after.1.budget));
    assert_eq!(maps.actions[&after.1.action].target, {
        maps.installed.tables.budget(budget_tag("slow")).unwrap().0
    });
    assert_eq!((plan.tables.begun_budgets, plan.begun, plan.ended), (vec![], vec![], vec![]));
}

#[test]
fn limits_are_placed_one_after_the_other() {
    let mut maps = Maps::default();
    let set = parse(
        "descriptors:
  - key: vlan
    rate_limits:
      - {unit: second, requests_per_unit: 8, algorithm: sliding_slots, slots: 8}
      - {unit: minute, requests_per_unit: 9, ceiling: {unit: minute, requests_per_unit: 20}}
      - {unit: minute, requests_per_unit: 20, algorithm: sliding_log}
",
    );
    maps.apply(&set);
    let record = maps.record(&set, "vlan");
    let limits: Vec<_> = record
        .limits
        .iter()
        .map(|limit| (limit.algorithm(), limit.role(), limit.first, limit.words))
        .collect();
    assert_eq!(
        limits,
        [
            (Algorithm::SlidingSlots, Role::Hard, 0, 8),
            (Algorithm::TokenBucket, Role::Soft, 8, 1),
            (Algorithm::TokenBucket, Role::Hard, 9, 1),
            (Algorithm::SlidingLog, Role::Hard, 10, 21),
        ]
    );
    assert_eq!(maps.actions[&record.soft_action].kind(), ActionKind::Pass);
    assert_eq!(record.action, 0);
}

#[test]
fn markers_have_their_roles() {
    let mut maps = Maps::default();
    let set = parse(
        "descriptors:
  - {key: vlan, rate_limit: {unit: second, requests_per_unit: 8, peak: {unit: second, \
         requests_per_unit: 9}, mark: {dscp: af11}}}
  - {key: dscp, rate_limit: {unit: second, requests_per_unit: 8, excess: {unit: second, \
         requests_per_unit: 1}, mark: {ecn: true}}}
",
    );
    maps.apply(&set);
    for (path, role, dscp) in [("vlan", Role::Hard, 10), ("dscp", Role::Excess, MARK_ECN)] {
        let record = maps.record(&set, path);
        assert_eq!([record.limits[0].role(), record.limits[1].role()], [Role::Soft, role]);
        let action = maps.actions[&record.soft_action];
        assert_eq!((action.kind(), action.dscp), (ActionKind::Mark, dscp));
    }
}

#[test]
fn interfaces_and_cpus_are_named_by_number() {
    let mut maps = Maps::default();
    let text = format!(
        "descriptors:
  - {{key: interface, value: eth3, {LIMIT}, action: {{interface: eth5}}}}
  - {{key: interface, value: eth4, {LIMIT}, action: {{cpu: 3}}}}
"
    );
    let set = parse(&text);
    let plan = maps.apply(&set);
    assert_eq!((plan.tables.interfaces, plan.tables.cpus), (vec![(0, 7)], vec![3]));
    let keys: BTreeSet<u32> = plan.tables.trie.iter().map(|(key, ..)| key.interface).collect();
    assert_eq!(keys, BTreeSet::from([5, 6]));
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
    // The number of an interface stays, and the other one waits for a step.
    let plan = maps.apply_text(&text.replace("eth5", "eth6"));
    assert_eq!(plan.tables.interfaces, [(1, 8)]);
    let plan = maps.apply_text(&text.replace("eth5", "eth6"));
    assert_eq!(plan.tables.interfaces, [(1, 8)]);
    let plan = maps.apply_text(&text.replace("eth5", "eth7"));
    assert_eq!(plan.tables.interfaces, [(0, 9)]);
}

#[test]
fn rules_that_no_packet_can_find_are_not_installed() {
    let mut maps = Maps::default();
    let set = parse(&format!(
        "descriptors:
  - {{key: masked_remote_address, v4_prefix_mask_len: 24, {LIMIT}}}
  - {{key: masked_remote_address, v4_prefix_mask_len: 24, value: 0.0.0.0/0, {LIMIT}}}
"
    ));
    let plan = maps.apply(&set);
    assert_eq!((plan.begun.len(), plan.tables.trie.len()), (1, 1));
    assert_eq!(maps.installed.tables.rules.len(), 1);
    assert_eq!(forgetful(&maps.adopted()), forgetful(&maps.installed));
}

#[test]
fn what_counts_flows_says_so() {
    let mut maps = Maps::default();
    let text = format!("descriptors: [{{key: vlan, {LIMIT}}}]\n");
    assert!(!maps.apply_text(&text).tables.header.flows());
    let flows = text.replace("10}", "10, count: flows}");
    assert!(maps.apply_text(&flows).tables.header.flows());
}

#[test]
fn a_table_without_rules_is_no_table() {
    let mut maps = Maps::default();
    maps.apply_text(&format!("descriptors: [{{key: vlan, {LIMIT}}}]\n"));
    let plan = maps.apply_text("descriptors: []\n");
    assert_eq!(plan.tables, TablesPlan { header: plan.tables.header, ..TablesPlan::default() });
    assert_eq!((plan.tables.header.tables(), plan.ended.len()), (0, 1));
    // The id of the table is not used again.
    let (table, _): (Table, Vec<Shape>) =
        maps.apply_text(&format!("descriptors: [{{key: vlan, {LIMIT}}}]\n")).tables.tables[0]
            .clone();
    assert_eq!(table.id, 24);
}
