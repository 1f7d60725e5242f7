//! Decides the fate of each rule: translated, with its differences; not translated, with the
//! reason; or left to the firewall, because it does not concern limiter.

mod before;
mod beside;
mod deny;
mod lists;
mod names;
mod step;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::header::TCP;
use limiter_rules::model::{Fact, Over, RuleLimit};
use limiter_text::plain::clean;
use serde::Serialize;

use super::barrier::Gone;
use super::count::counted;
use super::difference::Difference;
use super::firewall::{Case, Firewall, Hook, Key, Limit, Verdict};
use super::lists::Denied;
use super::packets::{Packets, state};
use super::paths::{Paths, paths_of};
use super::tables::{Piece, Tables};
use super::translation::Translation;
use beside::Placed;
use names::{is_interface, place};
use step::{of_hook, with_room};

pub(super) use step::{Kind, Step};

/// Most comparisons of the packets of rules.
const MOST_EFFORT: usize = 10_000_000;

const MOST_EXEMPT: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fate {
    /// No chain with a hook leads to the rule.
    #[default]
    Unseen,
    /// The rule does not concern limiter, for this reason.
    Left(String),
    Translated,
    /// Not translated, for this reason.
    Not(String),
}

impl Fate {
    const fn rank(&self) -> u8 {
        match self {
            Self::Unseen => 0,
            Self::Left(_) => 1,
            Self::Translated => 2,
            Self::Not(_) => 3,
        }
    }
}

/// The fates of all rules, and what they were translated to.
pub(super) struct Judge<'a> {
    firewall: &'a Firewall,
    pub(super) fates: Vec<Fate>,
    pub(super) differences: BTreeMap<usize, BTreeSet<Difference>>,
    pub(super) tables: Tables,
    pub(super) denied: Vec<Denied>,
    pub(super) translations: Vec<Translation>,
    /// Rules for forwarded packets.
    pub(super) forwarded: BTreeSet<usize>,
    placed: Vec<Placed>,
    /// Rules that drop what is over another rule's limit.
    consumed: BTreeSet<usize>,
    /// Number of uses of each memory and of each shared limit.
    memories: BTreeMap<String, usize>,
    /// Rules that count in lists filled by other rules, by list.
    lists: BTreeMap<String, Vec<Placed>>,
    effort: usize,
}

impl<'a> Judge<'a> {
    pub(super) fn new(firewall: &'a Firewall) -> Self {
        let mut memories = BTreeMap::new();
        for case in firewall.limits() {
            if let Some(memory) = case.limit.as_ref().and_then(|limit| limit.memory.as_ref()) {
                *memories.entry(memory.clone()).or_default() += 1;
            }
        }
        Self {
            firewall,
            fates: vec![Fate::Unseen; firewall.rules.len()],
            differences: BTreeMap::new(),
            tables: Tables::default(),
            denied: Vec::new(),
            translations: Vec::new(),
            lists: BTreeMap::new(),
            forwarded: BTreeSet::new(),
            placed: Vec::new(),
            consumed: BTreeSet::new(),
            memories,
            effort: 0,
        }
    }

    /// Sets the fate of a rule, unless it already has one that takes precedence.
    pub(super) fn fate(&mut self, rule: usize, fate: Fate) {
        if let Some(held) = self.fates.get_mut(rule)
            && fate.rank() > held.rank()
        {
            *held = fate;
        }
    }

    /// Handles a rule whose conditions exclude each other, or exclude those of the jump to its
    /// chain.
    pub(super) fn never(&mut self, rule: usize, case: &Case) {
        let why =
            "no packet meets its conditions and those of the rules that jump to it".to_owned();
        self.fate(rule, if case.limit.is_some() { Fate::Not(why) } else { Fate::Left(why) });
    }

    pub(super) fn jump(&mut self, rule: usize, packets: &Packets) {
        let limits = packets.unknown.iter().any(|unknown| unknown.limits);
        self.fate(
            rule,
            match packets.reasons() {
                Some(reason) if limits => Fate::Not(reason),
                _ => Fate::Left("only leads to other rules".to_owned()),
            },
        );
    }

    pub(super) fn cut_short(&mut self) {
        let why = "there are more rules, or jumps to them, than are followed";
        self.tables = Tables::default();
        for rule in 0..self.fates.len() {
            self.fate(rule, Fate::Not(why.to_owned()));
        }
        self.denied.clear();
    }

    /// Judges a rule. Returns what happens to its packets.
    pub(super) fn step(&mut self, step: &Step<'_>) -> Option<Gone> {
        match &step.case.limit {
            Some(limit) => self.limit(step, limit),
            None => self.plain(step),
        }
    }

    fn plain(&mut self, step: &Step<'_>) -> Option<Gone> {
        let limits = step.packets.unknown.iter().any(|unknown| unknown.limits);
        let left = |text: &str| Fate::Left(text.to_owned());
        let (fate, gone) = match step.verdict {
            Verdict::Continue | Verdict::Marks(_) => (left("neither drops nor limits"), None),
            Verdict::Accept => {
                (left("accepts, and limiter lets pass what no rule limits"), Some(Gone::Accepted))
            }
            Verdict::Translates(_) => (left("translates addresses"), Some(Gone::Accepted)),
            Verdict::Return => (left("only leaves its chain"), Some(Gone::Returned)),
            // Only packets over a limit reach this rule.
            Verdict::Drop | Verdict::Reject if self.consumed.contains(&step.rule) => {
                (Fate::Translated, None)
            }
            Verdict::Drop | Verdict::Reject => (self.drop(step), Some(Gone::Dropped)),
            Verdict::Unknown(what) | Verdict::Jump(what) | Verdict::Goto(what) => {
                (Fate::Not(format!("{what} is not known to `limiter import`")), Some(Gone::Maybe))
            }
        };
        let fate = match step.packets.reasons() {
            Some(reason) if limits => Fate::Not(reason),
            _ => fate,
        };
        self.fate(step.rule, fate);
        // A return from a chain with a hook ends it.
        Some(match gone? {
            Gone::Returned => match step.kind {
                Kind::Base { drops: true } => Gone::Dropped,
                Kind::Base { drops: false } => Gone::Accepted,
                Kind::Inner | Kind::Quiet => Gone::Returned,
            },
            gone => gone,
        })
    }

    /// Judges a rule that drops regardless of any rate.
    fn drop(&mut self, step: &Step<'_>) -> Fate {
        if matches!(step.hook, Hook::Outgoing | Hook::Nat | Hook::NatLater | Hook::Other) {
            return Fate::Left("drops what does not come in to this host".to_owned());
        }
        if (Packets { family: None, ..step.packets.clone() }) == Packets::default() {
            return Fate::Left("drops what no rule before it accepted".to_owned());
        }
        if step.packets.states.is_some_and(|states| states & (state::NEW | state::ESTABLISHED) == 0)
        {
            return Fate::Left(
                "drops by the state of connections, which limiter does not see".into(),
            );
        }
        match self.deny(step) {
            Ok((denied, differences)) => {
                self.denied.push(denied);
                self.differences.entry(step.rule).or_default().extend(differences);
                Fate::Translated
            }
            Err(reason) => Fate::Not(reason),
        }
    }

    fn limit(&mut self, step: &Step<'_>, limit: &Limit) -> Option<Gone> {
        let shares = self.has_list_alone(step, limit);
        let (gone, outcome) = match (step.verdict, limit.over) {
            _ if shares.is_err() => (None, shares),
            (Verdict::Return | Verdict::Continue, _) if step.kind == Kind::Quiet => {
                let why = "limits only what is logged or counted, and no traffic";
                self.fate(step.rule, Fate::Left(why.to_owned()));
                return None;
            }
            (Verdict::Continue, _) => {
                let why = "limits only what is logged or counted, and no traffic";
                self.fate(step.rule, Fate::Left(why.to_owned()));
                return None;
            }
            (Verdict::Translates(_), _) => {
                let why = "limits which connections have their addresses translated".to_owned();
                (Some(Gone::Accepted), Err(why))
            }
            (Verdict::Marks(what), _) => {
                let why = format!("limits {what}, and it is not followed what comes of that");
                (None, Err(why))
            }
            (Verdict::Drop | Verdict::Reject, true) => (None, self.translate(step, limit)),
            (Verdict::Accept | Verdict::Return, false) => {
                let returns = *step.verdict == Verdict::Return;
                let gone =
                    if returns && !step.kind.is_base() { Gone::Returned } else { Gone::Accepted };
                (Some(gone), self.translate_within(step, limit))
            }
            (Verdict::Drop | Verdict::Reject, false) => {
                (None, Err("drops what is within the limit, and not what is over it".to_owned()))
            }
            (Verdict::Accept, true) => {
                let why = "accepts what is over the limit".to_owned();
                (Some(Gone::Accepted), Err(why))
            }
            (Verdict::Return, true) => {
                let why = "leaves its chain with what is over the limit".to_owned();
                (Some(Gone::Returned), Err(why))
            }
            (Verdict::Unknown(what) | Verdict::Jump(what) | Verdict::Goto(what), _) => {
                let why = format!("{what} is not known to drop or to accept everything");
                (Some(Gone::Maybe), Err(why))
            }
        };
        self.fate(
            step.rule,
            match outcome {
                Ok(()) => Fate::Translated,
                Err(reason) => Fate::Not(reason),
            },
        );
        gone
    }

    /// Translates a limit whose rule accepts what is within it.
    fn translate_within(&mut self, step: &Step<'_>, limit: &Limit) -> Result<(), String> {
        if *step.verdict == Verdict::Return && step.kind.is_base() {
            return Err("returns from a chain that no rule jumps to".to_owned());
        }
        // The rule that drops the rest has the same conditions.
        if let Some(reason) = step.packets.reasons() {
            return Err(reason);
        }
        let dropping = (step.over)(step.packets)?;
        self.translate(step, limit)?;
        if let Some((rule, true)) = dropping {
            self.consumed.insert(rule);
        }
        if *step.verdict == Verdict::Accept {
            self.differences.entry(step.rule).or_default().insert(Difference::Accepted);
        }
        Ok(())
    }

    fn translate(&mut self, step: &Step<'_>, limit: &Limit) -> Result<(), String> {
        match step.hook {
            Hook::Outgoing => {
                return Err("limits what leaves: write a rule with `direction: out` by hand".into());
            }
            Hook::Nat | Hook::NatLater => {
                return Err("a chain of nat sees only the first packet of a connection".to_owned());
            }
            Hook::Other => return Err("its hook is not one of IP packets that come in".to_owned()),
            Hook::Prerouting | Hook::Input | Hook::Forward => {}
        }
        if let Some(reason) = step.packets.reasons() {
            return Err(reason);
        }
        if step.shared {
            return Err(
                "its packets come by several jumps, and what it holds is one for all".into()
            );
        }
        if let Some(memory) = &limit.memory
            && self.memories.get(memory).is_some_and(|uses| *uses > 1)
        {
            return Err(format!("another rule uses {memory} as well, and both share its buckets"));
        }
        let is_lo = |name: &String| name == "lo";
        if step.packets.interfaces.as_ref().is_some_and(|names| names.iter().any(is_lo)) {
            return Err("limits lo, which limiter is not attached to".to_owned());
        }
        if step.packets.interfaces.iter().flatten().any(|name| !is_interface(name)) {
            return Err("no interface has such a name".to_owned());
        }
        if !step.case.times.is_empty() {
            return Err("its set has sources for a time, and a rule here would keep them".into());
        }
        self.charges_once(step, limit)?;
        let before = self.before(step, limit)?;
        self.is_tracked(step, before.established)?;
        let mut differences = limit.differences.clone();
        differences.extend(of_hook(step.hook));
        differences.extend(before.differences);
        let (mut packets, beside) =
            self.on_the_wire(step, limit, before.established, &mut differences)?;
        let mut exempt = before.exempt;
        if let Some(pair) = &limit.pair {
            let between = (step.between)(pair)?;
            exempt.extend(between.exempt);
            if between.loopback {
                differences.push(Difference::Loopback);
            }
        }
        let meter = counted(&mut packets, limit.meter, before.established, &mut differences)?;
        let meter = with_room(meter, &mut differences);
        let merged = packets.protocols.as_ref().is_none_or(|protocols| protocols.contains(&TCP));
        if merged && packets.facts.contains_key(&Fact::PacketLength) {
            differences.push(Difference::Length);
        }
        if packets.interfaces.is_some() || limit.key.contains(&Key::Interface) {
            differences.push(Difference::Interface);
        }
        exempt.extend(&packets.not_sources);
        if exempt.len() > MOST_EXEMPT {
            return Err(format!("more than {MOST_EXEMPT} sources are exempt from it"));
        }
        let Paths { limited, exempt, shared, prefix64 } =
            paths_of(&packets, limit, &exempt, beside)?;
        if prefix64 {
            differences.push(Difference::Prefix64);
        }
        let rejects = self.drops_by_reject(step, limit);
        if rejects {
            differences.push(Difference::Rejected);
        }
        let name = self.name(step.rule);
        let common = limit.shared.as_ref().map(|name| clean(name));
        let placed = Placed::of(step, common.clone(), beside);
        let budget = shared.then(|| common.unwrap_or_else(|| name.clone()));
        let over = if rejects { Over::Reject } else { Over::Drop };
        let limit = RuleLimit::hard(meter);
        let (rule, hook) = (step.rule, step.hook);
        let piece = Piece { rule, name, hook, limited, exempt, limit, over, budget };
        let firewall = self.firewall;
        let place = |rule: usize| place(firewall, rule);
        self.tables.add(piece, place)?;
        self.placed.extend(placed);
        if step.hook == Hook::Forward {
            self.forwarded.insert(step.rule);
        }
        self.differences.entry(step.rule).or_default().extend(differences);
        Ok(())
    }

    fn drops_by_reject(&self, step: &Step<'_>, limit: &Limit) -> bool {
        if limit.over {
            return *step.verdict == Verdict::Reject;
        }
        let dropping = (step.over)(step.packets).ok().flatten();
        let rule = dropping.and_then(|(rule, _)| self.firewall.rules.get(rule));
        rule.is_some_and(|rule| rule.cases.iter().any(|case| case.verdict == Verdict::Reject))
    }

    fn spend(&mut self, effort: usize) -> Result<(), String> {
        self.effort = self.effort.saturating_add(effort);
        if self.effort > MOST_EFFORT {
            return Err("there are too many rules before it to compare it with".to_owned());
        }
        Ok(())
    }
}
