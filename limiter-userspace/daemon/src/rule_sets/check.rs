//! Explains and checks rule files for `limiter check`, without a daemon and without the kernel.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use limiter_api::render::{self, Render, line, push, rate_of, table};
use limiter_api::rules::Document;
use limiter_rules::compile::{RuleError, compile, effective_of_spec};
use limiter_rules::file::Problem;
use limiter_rules::model::{
    LimitList, Limits, Over, Path, Quota, RuleLimit, budget_sentence, limit_text, list_sentence,
    rule_sentence,
};
use limiter_rules::{
    Environment, Installed, PlanError, RuleFile, RuleFileError, RuleFiles, RuleSet, Subject,
    compile_set,
};
use limiter_text::plain::clean;
use serde::Serialize;

use super::layers::Layers;
use super::limit_ends;
use super::rule_files;
use crate::lists;
use crate::rule_sets::warnings;

/// Relative error of a rate below which it is not reported.
const WORTH_REPORTING: f64 = 0.001;

const MOST_SENTENCES: usize = 100;

/// Meaning of rule files, and the mistakes in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Checked {
    /// True if a daemon would accept the files.
    pub ok: bool,
    pub(crate) files: Vec<String>,
    /// All mistakes: the first mistake of each descriptor and budget, and each limit that cannot be
    /// enforced.
    pub errors: Vec<Mistake>,
    pub(crate) rules: usize,
    /// A sentence for each rule, budget and entry of the lists, up to [`MOST_SENTENCES`].
    pub(crate) sentences: Vec<String>,
    /// Tables of the rules, that of `remote_address` first.
    pub(crate) tables: Vec<Table>,
    /// Number of keyed tables that the rules take in the program, out of eight.
    pub(crate) tables_taken: usize,
    /// Entries of the allow list and of the deny list.
    pub(crate) lists: [usize; 2],
    pub(crate) budgets: Vec<String>,
    /// Limits whose rate is off by more than 0.1 %.
    pub(crate) rates: Vec<Rate>,
    /// Interfaces named by rules; only the daemon checks whether they exist.
    pub(crate) interfaces: Vec<String>,
    /// Warnings about rules that may not do what their author expects.
    pub(crate) warnings: Vec<String>,
    /// Notes that are good to know.
    pub(crate) notes: Vec<String>,
    /// Rules for packets of an interface, by the interface's name.
    #[serde(skip)]
    by_interface: BTreeMap<String, Vec<Subject>>,
}

/// A mistake in a rule file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// File of the mistake, or all files.
    pub(crate) file: String,
    pub(crate) line: Option<u64>,
    pub(crate) column: Option<u64>,
    /// Text of the mistake in one line.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Table {
    /// Keys of the table, in their nesting order.
    pub(crate) keys: String,
    pub(crate) rules: usize,
}

/// A limit whose effective rate differs from the written one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Rate {
    /// Path of the rule with the limit.
    pub(crate) rule: String,
    pub(crate) limit: String,
    /// Unit of both rates, as the limit writes it.
    #[serde(skip)]
    pub(crate) count: &'static str,
    /// Rate in the rule file, per second.
    pub(crate) configured_per_second: f64,
    /// Rate that the program enforces, per second.
    pub(crate) effective_per_second: f64,
}

impl From<&RuleFileError> for Mistake {
    fn from(error: &RuleFileError) -> Self {
        Self {
            file: error.file.clone(),
            line: error.place.map(|place| place.line),
            column: error.place.map(|place| place.column),
            message: error.to_string(),
        }
    }
}

/// Checks the files of `paths`; `-` stands for `input`. `max_frame` and `max_rules` are the
/// daemon's settings.
pub fn check(paths: &[PathBuf], input: &mut dyn Read, max_frame: u64, max_rules: u32) -> Checked {
    let mut checked = Checked::default();
    let mut files = Vec::new();
    for document in rule_files::read_each(paths, Some(input)) {
        match document {
            Ok(Document { name, text }) => {
                let (file, errors) = RuleFile::check(&name, text.as_bytes(), max_frame);
                checked.errors.extend(errors.iter().map(Mistake::from));
                checked.files.push(name.clone());
                files.push((name, file));
            }
            Err(error) => checked.errors.push(Mistake::from(&error)),
        }
    }
    match RuleFiles::unite(files) {
        Ok(union) => understand(&mut checked, union, max_frame, max_rules),
        // Once the mistakes are left out, no rule may remain.
        Err(error) if checked.errors.is_empty() => checked.errors.push(Mistake::from(&error)),
        Err(_) => {}
    }
    checked
}

impl Checked {
    /// The result of checking nothing.
    pub fn nothing() -> Self {
        Self { ok: true, ..Self::default() }
    }

    /// Returns true if the result depends on which interfaces are limited here.
    pub fn names_interfaces(&self) -> bool {
        !self.by_interface.is_empty()
    }

    /// Warns about rules for interfaces that no daemon limits here.
    pub fn limited_on(&mut self, names: &[String]) {
        for (name, rules) in &self.by_interface {
            if !names.contains(name) {
                self.warnings.extend(warnings::not_limited(name, rules, names));
            }
        }
    }
}

fn understand(checked: &mut Checked, union: RuleFiles, max_frame: u64, max_rules: u32) {
    // The files may be for another machine, with other interfaces and CPUs.
    let interfaces: RefCell<BTreeMap<String, u32>> = RefCell::default();
    let index = |name: &str| {
        let mut known = interfaces.borrow_mut();
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX).saturating_add(1);
        Some(*known.entry(name.to_owned()).or_insert(next))
    };
    // Only the daemon knows whether there are other nodes, so nothing is reported about them here.
    let cluster = Some(1);
    let environment = Environment {
        max_frame,
        interface_index: &index,
        cpus: u32::MAX,
        cluster,
        // The hook is not known here either.
        in_at_tc: None,
    };
    let layers = Layers { file: union, cluster, ..Layers::default() };
    let effective = layers.effective();
    let set = &layers.file.rules;
    let refused = |error: PlanError| {
        let nowhere = || RuleFileError {
            file: checked.files.join(", "),
            place: None,
            problem: Problem::Limit(error.to_string()),
        };
        Mistake::from(&layers.refused(&error).unwrap_or_else(nowhere))
    };
    let errors: Vec<PlanError> = match compile_set(set, &environment) {
        Err(errors) => {
            // A name missing in the files read may be defined in the files that could not be read.
            let whole = checked.errors.is_empty();
            let mut reported = BTreeSet::new();
            let errors = errors.into_all().filter(|error| match &error.error {
                // With a list of values, many rules share one limit: it is reported once.
                RuleError::Limit { limit, .. } => {
                    let place = layers.file.places.get(&error.subject);
                    place.is_none_or(|at| reported.insert((Arc::clone(&at.file), at.place, *limit)))
                }
                _ => whole,
            });
            errors.map(PlanError::from).collect()
        }
        Ok(_) if !checked.errors.is_empty() => Vec::new(),
        Ok(compiled) => match Installed::default().place(&compiled, 1, max_rules) {
            Ok(plan) => {
                checked.tables_taken = plan.installed.tables.ids.len();
                Vec::new()
            }
            Err(error) => vec![error.into()],
        },
    };
    let mistakes: Vec<Mistake> = errors.into_iter().map(refused).collect();
    checked.errors.extend(mistakes);
    checked.ok = checked.errors.is_empty();
    if !checked.ok {
        return;
    }
    checked.rules = effective.rules.len();
    let sentences = set.rules.iter().map(|rule| rule_sentence(rule, set));
    let sentences = sentences.chain(set.budgets.iter().map(budget_sentence));
    let lists = set.lists.iter().map(|(at, entry)| list_sentence(at, entry));
    let sentences = sentences.chain(lists);
    checked.sentences = sentences.take(MOST_SENTENCES).collect();
    checked.tables = tables(set);
    checked.budgets = set.budgets.iter().map(|budget| budget.name.clone()).collect();
    checked.rates = rates(set, max_frame);
    let allowed = set.lists.values().filter(|entry| entry.allow).count();
    checked.lists = [allowed, set.lists.len() - allowed];
    let paths: Vec<&Path> = set.rules.iter().map(|rule| &rule.path).collect();
    checked.by_interface = warnings::by_interface(&paths);
    checked.notes.extend(warnings::of_neighbours(set));
    checked.warnings = warnings::of_whole(&effective);
    checked.warnings.extend(takes_tc(set, environment));
    checked.warnings.extend(effective.judged.in_full());
    checked.warnings.extend(lists::over(&layers, limit_ends::now()));
    checked.interfaces = interfaces.into_inner().into_keys().collect();
}

/// Describes rules that a start at XDP refuses, because incoming packets can wait only at tc.
fn takes_tc(set: &RuleSet, environment: Environment<'_>) -> Option<String> {
    let delays = |limits: &Limits| matches!(limits.over, Over::Delay(_));
    let of_rules = set.rules.iter().filter_map(|rule| rule.terms.limits());
    let budgets = set.budgets.iter().map(|budget| &budget.limits);
    if !of_rules.chain(budgets).any(delays) {
        return None;
    }
    let at_xdp = Environment { in_at_tc: Some(false), ..environment };
    let refused = compile_set(set, &at_xdp).err()?.into_all();
    let refused = refused.filter(|error| matches!(error.error, RuleError::DelayIn { .. }));
    let rules: Vec<Subject> = refused.map(|error| error.subject).collect();
    let who = warnings::first_of(&rules)?;
    Some(format!(
        "{who} lets packets that come in wait: that takes `limiter run --hook tc` and Linux 6.6, \
         and a start without it is refused (docs/shaping.md#what-comes-in)"
    ))
}

fn tables(set: &RuleSet) -> Vec<Table> {
    let mut tables = Vec::new();
    let sources = set.rules.iter().filter(|rule| rule.path.selector().is_some()).count();
    if sources > 0 {
        tables.push(Table { keys: "remote_address".to_owned(), rules: sources });
    }
    // A rule mostly has the same keys as the rule before it.
    let mut last: Option<(&Path, usize)> = None;
    for rule in set.rules.iter().filter(|rule| rule.path.selector().is_none()) {
        let index = match last {
            Some((path, index)) if path.is_in_table_of(&rule.path) => index,
            _ => {
                let keys = rule.path.keys();
                let found = tables.iter().position(|table: &Table| table.keys == keys);
                found.unwrap_or_else(|| {
                    tables.push(Table { keys, rules: 0 });
                    tables.len() - 1
                })
            }
        };
        if let Some(table) = tables.get_mut(index) {
            table.rules += 1;
        }
        last = Some((&rule.path, index));
    }
    tables
}

fn rates(set: &RuleSet, max_frame: u64) -> Vec<Rate> {
    let mut rates = Vec::new();
    for rule in &set.rules {
        for limit in rule.terms.limits().iter().flat_map(|limits| limits.limits.iter()) {
            rates.extend(off(|| Subject::Rule(rule.path.clone()), &limit, max_frame));
        }
    }
    for budget in &set.budgets {
        for limit in budget.limits.limits.iter() {
            rates.extend(off(|| Subject::Budget(budget.name.clone()), &limit, max_frame));
        }
    }
    rates
}

/// Rates of a limit that differ from the written ones.
fn off(subject: impl Fn() -> Subject, limit: &RuleLimit, max_frame: u64) -> Vec<Rate> {
    // The limit compiled before, as part of the whole set.
    let Ok(compiled) = compile(&LimitList::from(*limit), false, max_frame) else {
        return Vec::new();
    };
    let upper = limit.upper.as_ref().map(|upper| upper.rate().quota());
    let quotas = [Some(limit.meter.quota()), upper];
    let mut off = Vec::new();
    for (quota, spec) in quotas.into_iter().flatten().zip(&compiled.record.limits) {
        let configured = per_second(quota);
        let Some(effective) = effective_of_spec(spec) else {
            continue;
        };
        if (effective / configured - 1.0).abs() > WORTH_REPORTING {
            off.push(Rate {
                rule: subject().to_string(),
                limit: limit_text(limit),
                count: quota.count.name(),
                configured_per_second: configured,
                effective_per_second: effective,
            });
        }
    }
    off
}

#[expect(clippy::cast_precision_loss, reason = "compared to one part in a thousand")]
fn per_second(quota: Quota) -> f64 {
    quota.requests_per_unit as f64 / quota.period.seconds() as f64
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

impl Render for Checked {
    fn render(&self, text: &mut String) {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = writeln!(
            text,
            "ok: {} with {} in {}, {}",
            counted(self.files.len(), "file"),
            counted(self.rules, "rule"),
            counted(self.tables.len(), "table"),
            counted(self.budgets.len(), "budget"),
        );
        if let [allowed, denied] = self.lists
            && allowed + denied > 0
        {
            line(text, format_args!("on the lists: {allowed} allowed, {denied} denied"));
        }
        if !self.tables.is_empty() {
            let mut tables = table(&["TABLE", ">RULES"]);
            for table in &self.tables {
                tables.add_row([table.keys.clone(), table.rules.to_string()]);
            }
            text.push('\n');
            push(text, &tables);
        }
        if !self.sentences.is_empty() {
            text.push('\n');
        }
        for sentence in &self.sentences {
            line(text, format_args!("{}", clean(sentence)));
        }
        let all = self.rules + self.budgets.len() + self.lists.iter().sum::<usize>();
        let more = all.saturating_sub(self.sentences.len());
        if more > 0 {
            line(text, format_args!("and {more} more"));
        }
        if !self.rates.is_empty() {
            let mut rates = table(&["RATE NOT HELD TO 0.1 %", "LIMIT", ">WRITTEN", ">ENFORCED"]);
            for off in &self.rates {
                rates.add_row([
                    off.rule.clone(),
                    off.limit.clone(),
                    rate_of(&off.limit, Some(off.configured_per_second), off.count),
                    rate_of(&off.limit, Some(off.effective_per_second), off.count),
                ]);
            }
            text.push('\n');
            push(text, &rates);
        }
        if !self.interfaces.is_empty() {
            let names = self.interfaces.join(", ");
            line(text, format_args!("not looked for on this machine: the interfaces {names}"));
        }
        for note in &self.notes {
            line(text, format_args!("note: {}", clean(note)));
        }
        render::warnings(text, &self.warnings);
    }
}
