//! What the pages say of a request: its rules, its buckets, its answer.

use std::collections::BTreeMap;

use super::bucket::{Left, Limit, Meter, Time, least};
use super::rules::{File, Rule, Terms, Tree, Value, address};

/// A descriptor of a request.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) entries: Vec<(&'static str, &'static str)>,
    pub(super) hits: Option<u64>,
    /// A limit that the request brings, in the place of the rule's.
    pub(super) brought: Option<Limit>,
}

/// The answer for one descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) over: bool,
    pub(super) over_soft: bool,
    pub(super) unlimited: bool,
    pub(super) left: Vec<Left>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Within,
    Over,
    Charged { over_soft: bool },
}

/// What a descriptor, or an aggregate of it, is charged to.
#[derive(Clone, Debug)]
struct Target<'a> {
    rule: &'a Rule,
    of: usize,
    bucket: String,
    limits: Vec<Limit>,
    hits: u64,
    state: State,
}

/// A charge to a limit of a bucket: what it had before and after.
type Undo = (String, usize, Meter, Meter);

#[derive(Clone, Debug, Default)]
pub(super) struct Reserved {
    pub(super) over: bool,
    pub(super) statuses: Vec<Status>,
    pub(super) wait: Option<u64>,
    pub(super) needed: Option<u64>,
    /// True if something is charged.
    pub(super) held: bool,
}

pub(super) struct Model {
    pub(super) file: File,
    tree: Tree,
    buckets: BTreeMap<String, Vec<Meter>>,
    /// What a limit that a request brings stands for: a rule without name and modes.
    plain: Rule,
    /// Reservations that can be given back, with the time until which.
    held: Vec<Option<(Vec<Undo>, u64)>>,
}

/// All limits of a rule, each before its ceiling.
fn with_ceilings(limits: &[Limit]) -> Vec<Limit> {
    limits.iter().flat_map(|limit| limit.all()).collect()
}

/// True for a limit over which nothing passes.
fn is_hard(limit: &Limit) -> bool {
    limit.ceiling.is_none()
}

impl Target<'_> {
    fn meters(&self, buckets: &BTreeMap<String, Vec<Meter>>) -> Vec<Meter> {
        let unseen = || vec![Meter::default(); self.limits.len()];
        buckets.get(&self.bucket).cloned().unwrap_or_else(unseen)
    }

    fn passes(&self, buckets: &BTreeMap<String, Vec<Meter>>, at: Time) -> bool {
        let meters = self.meters(buckets);
        let mut hard = self.limits.iter().zip(&meters).filter(|(limit, _)| is_hard(limit));
        hard.all(|(limit, meter)| limit.conforms(meter, at, self.hits))
    }

    /// Charges each limit as of the first moment at which it takes the request, at most so many
    /// nanoseconds ahead.
    fn charge(
        &mut self,
        buckets: &mut BTreeMap<String, Vec<Meter>>,
        at: Time,
        ahead: u64,
        undo: &mut Vec<Undo>,
    ) {
        if !self.passes(buckets, at.plus(ahead)) {
            self.state = State::Over;
            return;
        }
        let mut meters = self.meters(buckets);
        let mut over_soft = false;
        for (number, (limit, meter)) in self.limits.iter().zip(&mut meters).enumerate() {
            let before = meter.clone();
            let conforms = |nanos| limit.conforms(&before, at.plus(nanos), self.hits);
            match least(conforms).filter(|first| *first <= ahead) {
                Some(first) => limit.charge(meter, at.plus(first), self.hits),
                None => over_soft = true,
            }
            if *meter != before {
                undo.push((self.bucket.clone(), number, before, meter.clone()));
            }
        }
        buckets.insert(self.bucket.clone(), meters);
        self.state = State::Charged { over_soft };
    }
}

/// A request is over any limit that counts by itself, or over all of those that count together.
fn is_over(targets: &[Target<'_>]) -> bool {
    let over = |target: &&Target<'_>| target.state == State::Over;
    let counted = || targets.iter().filter(|target| !target.rule.shadow);
    let quotas: Vec<_> = counted().filter(|target| target.rule.quota).collect();
    counted().filter(|target| !target.rule.quota).any(|target| over(&target))
        || !quotas.is_empty() && quotas.iter().all(over)
}

impl Model {
    pub(super) fn new(file: File) -> Self {
        let (path, wider) = (Vec::new(), [None; 2]);
        let (shadow, quota, name, replaces) = (false, false, None, None);
        let plain = Rule { path, terms: Terms::Unlimited, shadow, quota, name, replaces, wider };
        let (tree, buckets, held) = (Tree::new(&file), BTreeMap::new(), Vec::new());
        Self { file, tree, buckets, plain, held }
    }

    fn targets(&self, request: &[Part], hits: u64) -> Vec<Target<'_>> {
        let mut targets = Vec::new();
        for (index, part) in request.iter().enumerate() {
            let hits = part.hits.unwrap_or(hits);
            let found = self.tree.find(&part.entries);
            if let Some(limit) = part.brought {
                let of = |(number, own): &(usize, Vec<String>)| match self.file.rules[*number].terms
                {
                    Terms::Nothing => None,
                    _ => Some(format!("{number} {own:?}")),
                };
                let of = found.as_ref().and_then(of).unwrap_or_else(|| {
                    let own = |(key, value): &(&str, &str)| match address(value) {
                        Some(address) if *key == "remote_address" => format!("{key} {address}"),
                        _ => format!("{key} {value}"),
                    };
                    part.entries.iter().map(own).collect::<Vec<_>>().join(" ")
                });
                let (bucket, rule) = (format!("brought {limit} {of}"), &self.plain);
                let (limits, state) = match limit.amount {
                    0 => (Vec::new(), State::Over),
                    _ => (vec![limit], State::Within),
                };
                targets.push(Target { rule, of: index, bucket, limits, hits, state });
                continue;
            }
            let Some((number, own)) = found else { continue };
            let rule = &self.file.rules[number];
            let path = format!("{:?}", rule.path);
            let mut bucket = format!("{path} {}", own.join(" "));
            let (limits, state) = match &rule.terms {
                Terms::Nothing => continue,
                Terms::Block => (Vec::new(), State::Over),
                Terms::Unlimited => (Vec::new(), State::Free),
                Terms::Limits(limits) => (with_ceilings(limits), State::Within),
                Terms::Budget(number) => {
                    bucket = format!("budget {number}");
                    (with_ceilings(&self.file.budgets[*number]), State::Within)
                }
            };
            targets.push(Target { rule, of: index, bucket, limits, hits, state });
        }
        let replaces: Vec<_> = targets.iter().filter_map(|target| target.rule.replaces).collect();
        targets.retain(|target| target.rule.name.is_none_or(|name| !replaces.contains(&name)));
        let mut wider = Vec::new();
        for target in &targets {
            let source =
                request[target.of].entries.iter().find(|(key, _)| *key == "remote_address");
            let Some(source) = source.and_then(|(_, value)| address(value)) else { continue };
            for (number, limit) in target.rule.wider.iter().enumerate() {
                let bits = match (source.addr().is_ipv4(), number) {
                    (true, 0) => 24,
                    (true, _) => 16,
                    (false, 0) => 48,
                    (false, _) => continue,
                };
                let Some(limit) = limit else { continue };
                let prefix = ipnet::IpNet::new(source.addr(), bits).unwrap().trunc();
                // Each value of a list is a rule.
                let path = target.rule.path.iter().zip(&request[target.of].entries);
                let path = path.map(|(level, entry)| match level.1 {
                    Value::List(_) => format!("{entry:?}"),
                    _ => format!("{level:?}"),
                });
                let path = path.collect::<Vec<_>>().join(" ");
                let bucket = format!("{path} wider {number} {prefix}");
                let limits = vec![*limit];
                wider.push(Target { bucket, limits, state: State::Within, ..target.clone() });
            }
        }
        targets.append(&mut wider);
        targets
    }

    /// True if two descriptors of a request meet one bucket.
    pub(super) fn meets_twice(&self, request: &[Part], hits: u64) -> bool {
        let targets = self.targets(request, hits);
        let limited = || targets.iter().filter(|target| !target.limits.is_empty());
        limited()
            .enumerate()
            .any(|(n, one)| limited().skip(n + 1).any(|other| one.bucket == other.bucket))
    }

    /// Decides when a request may go, or whether it passes now, and what is said of each
    /// descriptor; charges it.
    pub(super) fn reserve(
        &mut self,
        request: &[Part],
        hits: u64,
        at: Time,
        longest: Option<u64>,
    ) -> Reserved {
        let targets = self.targets(request, hits);
        // All of them, one after the other, as of one moment.
        let looked = |ahead| {
            let (mut buckets, mut targets) = (self.buckets.clone(), targets.clone());
            for target in targets.iter_mut().filter(|target| target.state == State::Within) {
                target.charge(&mut buckets, at.plus(ahead), 0, &mut Vec::new());
            }
            for target in &mut targets {
                if matches!(target.state, State::Charged { .. }) {
                    target.state = State::Within;
                }
            }
            targets
        };
        let passes = |ahead| !is_over(&looked(ahead));
        // Only who waits is told how long.
        let needed = if longest.is_none() && !passes(0) { None } else { least(passes) };
        let wait = needed.filter(|wait| *wait <= longest.unwrap_or(0));
        let mut targets = looked(wait.unwrap_or(0));
        let (mut buckets, mut undo) = (self.buckets.clone(), Vec::new());
        if let Some(wait) = wait {
            for target in targets.iter_mut().filter(|target| target.state == State::Within) {
                target.charge(&mut buckets, at, wait, &mut undo);
            }
        }
        let statuses = (0..request.len()).map(|of| {
            let own: Vec<_> = targets.iter().filter(|target| target.of == of).collect();
            let left = own.iter().flat_map(|target| {
                let meters = target.meters(&buckets);
                let limits = target.limits.clone().into_iter().zip(meters);
                let hits = target.hits.max(1);
                limits.map(move |(limit, meter)| limit.left(&meter, at, hits))
            });
            let is_over = own.iter().any(|target| target.state == State::Over);
            let soft = own.iter().any(|t| t.state == State::Charged { over_soft: true });
            Status {
                over: is_over && own.iter().any(|target| !target.rule.shadow),
                over_soft: soft && !is_over,
                unlimited: own.first().is_some_and(|target| target.state == State::Free),
                left: left.collect(),
            }
        });
        let statuses = statuses.collect();
        let held = !undo.is_empty();
        self.buckets = buckets;
        if let (Some(wait), true) = (wait, held) {
            self.held.push(Some((undo, at.boot + wait)));
        }
        Reserved { over: wait.is_none(), statuses, wait, needed, held }
    }

    pub(super) fn decide(&mut self, request: &[Part], hits: u64, at: Time) -> Reserved {
        let decided = self.reserve(request, hits, at, None);
        if decided.held {
            self.held.pop();
        }
        decided
    }

    /// Gives a reservation back: true if nothing of it stays, `None` if it cannot be given back.
    pub(super) fn give_back(&mut self, number: usize, at: Time) -> Option<bool> {
        let (undo, until) = self.held[number].take()?;
        if until <= at.boot {
            return None;
        }
        let mut all = true;
        for (bucket, limit, before, after) in undo.into_iter().rev() {
            let meter = &mut self.buckets.get_mut(&bucket).unwrap()[limit];
            if *meter == after {
                *meter = before;
            } else {
                all &= after.free <= u128::from(at.boot) * 32;
            }
        }
        Some(all)
    }

    /// Forgets reservations, as a restart does.
    pub(super) fn forget(&mut self) {
        self.held.iter_mut().for_each(|held| *held = None);
    }

    /// The first descriptor whose limits cannot say when a request may go.
    pub(super) fn says_no_time(&self, request: &[Part], hits: u64) -> Option<usize> {
        let targets = self.targets(request, hits);
        let says = |target: &&Target<'_>| target.limits.iter().all(Limit::is_rate);
        targets.iter().find(|target| !says(target)).map(|target| target.of)
    }
}
