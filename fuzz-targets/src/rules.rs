//! From the text of a rule file to what the maps hold.

use std::collections::BTreeMap;

use limiter_common::time::Ticks;
use limiter_model::Model;
use limiter_rules::file::render;
use limiter_rules::{Environment, HeldTables, Installed, Plan, RuleFile, RuleSet};

/// The largest frame that byte bursts are checked against.
const MAX_FRAME: u64 = 1522;

/// Longer texts take longer, and have nothing new.
pub const MAX_LENGTH: usize = 1 << 16;

const CAPACITY: u32 = 256;

/// A machine that has every interface but those whose names begin with `no`.
fn index(name: &str) -> Option<u32> {
    if name.starts_with("no") {
        return None;
    }
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    Some(name.bytes().fold(0x811c_9dc5, fold) | 1)
}

/// Plans a rule set from what is installed.
///
/// # Errors
///
/// The text of the refusal.
pub fn plan(installed: &Installed, set: &RuleSet, generation: u64) -> Result<Plan, String> {
    let machine = Environment {
        max_frame: MAX_FRAME,
        interface_index: &index,
        cpus: 4,
        cluster: None,
        in_at_tc: Some(false),
    };
    installed.plan(set, generation, CAPACITY, &machine).map_err(|error| error.to_string())
}

/// Checks everything that is promised of a rule file.
///
/// # Panics
///
/// When a promise is broken.
pub fn check(text: &[u8]) {
    if text.len() > MAX_LENGTH {
        return;
    }
    let file = match RuleFile::parse("fuzz.yaml", text, MAX_FRAME) {
        Ok(file) => file,
        Err(error) => {
            let error = error.to_string();
            assert!(
                error.starts_with("fuzz.yaml"),
                "an error that does not name the file: {error}"
            );
            return;
        }
    };
    let rendered = render("fuzz", &file.rules, MAX_FRAME).expect("a rule set can be rendered");
    match RuleFile::parse("rendered.json", rendered.as_bytes(), MAX_FRAME) {
        Ok(again) => assert_eq!(again.rules, file.rules, "rendered as {rendered}"),
        Err(error) => panic!("what is rendered is refused: {error}\n{rendered}"),
    }
    let first = match plan(&Installed::default(), &file.rules, 1) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.is_empty(), "a refusal without a word");
            return;
        }
    };
    read_back(&first);
    let mut model = Model::new();
    model.commit(first.clone(), Ticks::ZERO);
    let again = plan(&first.installed, &file.rules, 2).expect("the same rules again");
    assert!(
        again.limits.is_empty()
            && again.tables.records.is_empty()
            && again.tables.actions.is_empty(),
        "the same rules again change something: {again:?}"
    );
    assert!(again.begun.is_empty() && again.ended.is_empty(), "{again:?}");
    model.commit(again.clone(), Ticks::ZERO);
    let none = plan(&again.installed, &RuleSet::default(), 3).expect("no rules at all");
    assert_eq!(none.ended.len(), first.begun.len(), "{none:?}");
    model.commit(none, Ticks::ZERO);
    assert!(model.installed().is_empty());
}

/// Checks that the rules can be read back from what the maps hold.
fn read_back(plan: &Plan) {
    let limits: BTreeMap<_, _> = plan.limits.iter().copied().collect();
    let records: BTreeMap<_, _> = plan.tables.records.iter().copied().collect();
    let actions: BTreeMap<_, _> = plan.tables.actions.iter().copied().collect();
    let tables = HeldTables {
        tables: plan.tables.tables.clone(),
        trie: plan.tables.trie.clone(),
        replies: plan.tables.replies,
        bans: plan.tables.bans,
        interfaces: plan.tables.interfaces.clone(),
    };
    let installed = Installed::from_maps(&plan.trie, |slot| limits.get(&slot).copied())
        .with_tables(
            &tables,
            |slot| records.get(&slot).copied(),
            |index| actions.get(&u32::from(index)).copied(),
        );
    let expected = &plan.installed;
    assert_eq!(installed.rules, expected.rules, "read back from the maps");
    assert_eq!(installed.tables.ids, expected.tables.ids, "read back from the maps");
    assert_eq!(installed.tables.rules, expected.tables.rules, "read back from the maps");
    assert_eq!(installed.tables.records, expected.tables.records, "read back from the maps");
    assert_eq!(installed.tables.actions, expected.tables.actions, "read back from the maps");
}
