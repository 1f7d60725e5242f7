//! Warnings: rules that can be put in force, and may not do what their author thinks. They are
//! reported by whatever takes rules: `check`, `apply`, `set`, `import`, `status`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use limiter_common::wire::{Count, Evidence};

use super::model::{
    Crowd, Direction, Limits, Listing, Meeting, Meter, Over, Part, Path, Rule, RuleLimit, RuleSet,
    Selector, Subject, Terms, Traffic, Upper,
};

mod kind;
mod rate;

pub use kind::{Kind, Warning};
pub use rate::{burst_for_tcp, is_slow, low_ceiling};

/// Rules of one kind that are reported one by one, before the others are only counted.
const MOST_REPORTED: usize = 10;

/// What captures say nothing about: their packets are judged as incoming, never as outgoing.
pub fn not_judged_in_captures(set: &RuleSet) -> Vec<String> {
    let of = |direction: Direction| {
        let mut rules = set.rules.iter().filter(|rule| rule.path.direction == direction);
        let first = Subject::Rule(rules.next()?.path.clone());
        let more = match rules.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!("the {first}{more}"))
    };
    let out = of(Direction::Out);
    let both = of(Direction::Both);
    let out = out.map(|who| format!("only what comes in is judged here: {who} has no packets"));
    let both =
        both.map(|who| format!("only what comes in is judged here: {who} has half of its packets"));
    out.into_iter().chain(both).collect()
}

/// All warnings about a rule set: the first rules of each kind.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    by_kind: Vec<(Kind, Vec<Warning>, usize)>,
}

impl Warnings {
    /// Judges a rule set, and the entries of the lists beside it. `meant` is true for rules whose
    /// author said that all packets share them.
    pub fn of(
        set: &RuleSet,
        lists: &BTreeMap<Selector, Listing>,
        meant: impl Fn(&Path) -> bool,
    ) -> Self {
        let mut judge = Judge { warnings: Self::default(), meetings: HashMap::new() };
        let budgets: HashMap<&str, &Limits> =
            set.budgets.iter().map(|budget| (budget.name.as_str(), &budget.limits)).collect();
        let mut judged = BTreeSet::new();
        let alone = BySource::of(set);
        for rule in &set.rules {
            judge.meets_nothing(rule);
            judge.is_crowd(rule);
            let traffic = rule.path.traffic();
            let meeting = judge.meeting(&traffic);
            match &rule.terms {
                Terms::Unlimited => {}
                Terms::Budget(name) => {
                    if let Some(limits) = budgets.get(name.as_str())
                        // One rule of a budget is enough to judge its limits by.
                        && judged.insert((name.as_str(), meeting.tcp_data, meeting.syns))
                    {
                        let subject = Subject::Budget(name.clone());
                        judge.limits(&subject, limits, &rule.path, &traffic, meeting);
                    }
                }
                Terms::Limits(limits) => {
                    let subject = Subject::Rule(rule.path.clone());
                    judge.limits(&subject, limits, &rule.path, &traffic, meeting);
                    if is_together(rule, &traffic) && !alone.has(&rule.path) && !meant(&rule.path) {
                        judge.add(Warning::of(Kind::Together, subject));
                    }
                }
            }
        }
        judge.leaves_a_family(set, &meant);
        for (selector, _) in lists.iter().filter(|(_, entry)| !entry.allow) {
            if let Some(crowd) = Crowd::of(selector) {
                let subject = Subject::Listed(*selector);
                let detail = crowd.to_string();
                judge.add(Warning { detail, ..Warning::of(Kind::CrowdDenied, subject) });
            }
        }
        judge.warnings
    }

    /// The warnings about one rule that somebody asked for as it is.
    pub fn of_rule(rule: &Rule) -> Vec<Warning> {
        let all = Self::of(&RuleSet::of([rule.clone()]), &BTreeMap::new(), |_| true);
        all.by_kind.into_iter().flat_map(|(_, warnings, _)| warnings).collect()
    }

    /// A line for each kind: its first rule, and how many more there are.
    pub fn in_short(&self) -> impl Iterator<Item = (Kind, String)> + '_ {
        let by_kind = self.by_kind.iter();
        by_kind.filter_map(|(kind, reported, count)| {
            Some((*kind, reported.first()?.text(count.saturating_sub(1))))
        })
    }

    /// A line for each rule, up to some of a kind.
    pub fn in_full(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (_, reported, count) in &self.by_kind {
            let more =
                |at: usize| if at + 1 == reported.len() { count - reported.len() } else { 0 };
            lines.extend(reported.iter().enumerate().map(|(at, warning)| warning.text(more(at))));
        }
        lines
    }
}

/// Rules of each source, by their keys without it.
struct BySource(BTreeSet<(Vec<Part>, Direction)>);

impl BySource {
    fn of(set: &RuleSet) -> Self {
        let limiting = set.rules.iter().filter(|rule| rule.terms != Terms::Unlimited);
        let parts = limiting.filter_map(|rule| {
            let each = |part: &Part| matches!(part, Part::Source(_, None));
            let others = |part: &&Part| !each(part);
            rule.path.parts.iter().any(each).then(|| {
                let mut parts: Vec<Part> = rule.path.parts.iter().filter(others).cloned().collect();
                parts.sort();
                (parts, rule.path.direction)
            })
        });
        Self(parts.filter(|(parts, _)| !parts.is_empty()).collect())
    }

    /// True if a rule bounds each source of the packets of this one.
    fn has(&self, path: &Path) -> bool {
        let mut parts = path.parts.to_vec();
        parts.sort();
        let bounds = |direction| self.0.contains(&(parts.clone(), direction));
        bounds(path.direction) || bounds(Direction::Both)
    }
}

/// The sources of rules whose other keys are the same.
#[derive(Default)]
struct Sources<'a> {
    /// True if a rule has no value.
    every: bool,
    nets: Vec<IpNet>,
    /// The first rule that limits a whole family.
    family: Option<&'a Path>,
}

struct Judge {
    warnings: Warnings,
    /// Answers about shapes of traffic: many rules have one shape.
    meetings: HashMap<super::model::Shape, Meeting>,
}

impl Judge {
    fn add(&mut self, warning: Warning) {
        let by_kind = &mut self.warnings.by_kind;
        match by_kind.iter_mut().find(|(kind, ..)| *kind == warning.kind) {
            Some((_, reported, count)) => {
                *count += 1;
                if reported.len() < MOST_REPORTED {
                    reported.push(warning);
                }
            }
            None => by_kind.push((warning.kind, vec![warning], 1)),
        }
    }

    fn meeting(&mut self, traffic: &Traffic) -> Meeting {
        let shape = traffic.shape();
        *self.meetings.entry(shape).or_insert_with(|| traffic.meeting())
    }

    /// Warns about a rule whose keys no packet has, or only broken ones.
    fn meets_nothing(&mut self, rule: &Rule) {
        let traffic = rule.path.traffic();
        let meeting = self.meeting(&traffic);
        let (kind, such): (Kind, fn(Meeting) -> bool) = match meeting {
            Meeting { any: false, .. } => (Kind::Nothing, |meeting| meeting.any),
            Meeting { proper: false, .. } => (Kind::Broken, |meeting| meeting.proper),
            Meeting { with_head: false, .. } if !traffic.names_fragment() => {
                (Kind::Pieces, |meeting| meeting.with_head)
            }
            _ => return,
        };
        let keys = rule.path.contradiction(such).unwrap_or_default();
        let keys = keys.iter().map(|part| part.text(rule.path.direction));
        let detail = keys.collect::<Vec<_>>().join(" and ");
        self.add(Warning { detail, ..Warning::of(kind, Subject::Rule(rule.path.clone())) });
    }

    /// Warns about a source that is many people.
    fn is_crowd(&mut self, rule: &Rule) {
        if rule.terms == Terms::Unlimited {
            return;
        }
        let found = rule.path.parts.iter().find_map(|part| match part {
            Part::Source(masks, Some(net)) => {
                let crowd = Crowd::of(&Selector::Prefix(*net))?;
                let (one, mask) = (crowd.is_in_one_source(), masks.of(net)?);
                // A longer mask distinguishes them.
                (!one || mask < 96).then_some((crowd, one))
            }
            _ => None,
        });
        if let Some((crowd, one)) = found {
            let kind = if one { Kind::Translated } else { Kind::Crowd };
            let subject = Subject::Rule(rule.path.clone());
            self.add(Warning { detail: crowd.to_string(), ..Warning::of(kind, subject) });
        }
    }

    /// Warns about a rule for all sources of one family, where no rule takes those of the other.
    fn leaves_a_family(&mut self, set: &RuleSet, meant: impl Fn(&Path) -> bool) {
        let mut of_others: BTreeMap<(Vec<&Part>, Direction), Sources<'_>> = BTreeMap::new();
        for rule in &set.rules {
            let is_source = |part: &&Part| matches!(part, Part::Source(..));
            let (source, mut others): (Vec<&Part>, Vec<&Part>) =
                rule.path.parts.iter().partition(is_source);
            let [Part::Source(_, net)] = source[..] else { continue };
            others.sort();
            let found = of_others.entry((others, rule.path.direction)).or_default();
            match net {
                None => found.every = true,
                Some(net) => {
                    found.nets.push(*net);
                    if net.prefix_len() == 0 && rule.terms != Terms::Unlimited {
                        found.family.get_or_insert(&rule.path);
                    }
                }
            }
        }
        for ((others, direction), found) in &of_others {
            let Some(path) = found.family.filter(|path| !meant(path)) else { continue };
            let both_ways = of_others.get(&(others.clone(), Direction::Both));
            let both_ways = both_ways.filter(|_| *direction != Direction::Both);
            let mut nets = found.nets.clone();
            nets.extend(both_ways.iter().flat_map(|sources| &sources.nets));
            let nets = IpNet::aggregate(&nets);
            let v4 = nets.contains(&IpNet::V4(Ipv4Net::default()));
            let v6 = nets.contains(&IpNet::V6(Ipv6Net::default()));
            if found.every || both_ways.is_some_and(|sources| sources.every) || v4 == v6 {
                continue;
            }
            let (none, other) = if v4 { ("IPv6", "::/0") } else { ("IPv4", "0.0.0.0/0") };
            let detail = format!(
                "no source of {none} meets it: leave `value` out to mean both families, or add a \
                 rule for {other:?}"
            );
            let subject = Subject::Rule(path.clone());
            self.add(Warning { detail, ..Warning::of(Kind::OneFamily, subject) });
        }
    }

    /// Judges limits on the packets of a path.
    fn limits(
        &mut self,
        subject: &Subject,
        limits: &Limits,
        path: &Path,
        traffic: &Traffic,
        meeting: Meeting,
    ) {
        // It was already reported.
        if !meeting.any {
            return;
        }
        let drops = matches!(limits.over, Over::Drop | Over::Reject | Over::Ban(_));
        let longest = match &limits.over {
            Over::Delay(delay) => Some(delay.longest),
            _ => None,
        };
        let mut reported: BTreeSet<Kind> = BTreeSet::new();
        for limit in limits.limits.iter() {
            let count = limit.meter.quota().count;
            let found = if !meeting.charged(count) {
                Some((Kind::NoSyns, path.to_string()))
            } else if meeting.tcp_data && (drops || longest.is_some()) {
                let hangs = longest.is_none_or(|longest| rate::waits_in_vain(&limit, longest));
                rate::session(&limit, path, traffic, meeting)
                    .filter(|_| hangs)
                    .map(|detail| (Kind::Session, detail))
                    .or_else(|| match longest {
                        Some(longest) => Some((Kind::Wait, rate::wait(&limit, traffic, longest)?)),
                        None => {
                            Some((Kind::Burst, rate::burst(&limit, traffic, could_wait(limits))?))
                        }
                    })
            } else {
                None
            };
            let low = || match &limit.upper {
                Some(Upper::Ceiling(ceiling)) => {
                    Some((Kind::Ceiling, low_ceiling(&limit.meter, ceiling)?))
                }
                // A peak is mostly shorter: it evens out what the burst below it lets come.
                _ => None,
            };
            let small = || {
                let joined = path.direction.has_out() && meeting.tcp_data && drops;
                Some((Kind::SuperFrame, joined.then(|| rate::super_frame(&limit))??))
            };
            if let Some((kind, detail)) = found.or_else(low).or_else(small)
                && reported.insert(kind)
            {
                self.add(Warning { detail, ..Warning::of(kind, subject.clone()) });
            }
        }
        if let Over::Ban(ban) = &limits.over {
            let counts = |count| limits.limits.iter().any(|at| at.meter.quota().count == count);
            match ban.evidence {
                Evidence::None if limits.can_have_evidence(meeting) => {
                    self.add(Warning::of(Kind::Forgeable, subject.clone()));
                }
                Evidence::None => {
                    self.add(Warning::of(Kind::OnlyForgeable, subject.clone()));
                }
                // SYNs alone are refused.
                Evidence::Established if counts(Count::Syns) => {
                    self.add(Warning::of(Kind::NoStrikes, subject.clone()));
                }
                Evidence::Established => {}
            }
        }
    }
}

/// True if packets over the limits are dropped, but could wait.
fn could_wait(limits: &Limits) -> bool {
    let can = |limit: &RuleLimit| {
        limit.upper.is_none()
            && matches!(limit.meter, Meter::TokenBucket(_) | Meter::LeakyBucket { .. })
    };
    limits.over == Over::Drop
        && limits.sharing.is_none()
        && limits.limits.iter().all(|limit| can(&limit))
}

/// True if all senders share the bucket of a rule on a port, a protocol or the like.
fn is_together(rule: &Rule, traffic: &Traffic) -> bool {
    let each =
        |part: &Part| matches!(part, Part::Source(..) | Part::Inner(_) | Part::Destination(None));
    let limits = rule.terms.limits().is_some_and(|limits| {
        !limits.limits.is_empty() && matches!(limits.over, Over::Drop | Over::Reject | Over::Ban(_))
    });
    // What goes out is this machine's own, or of those behind it: all of it together is meant.
    limits
        && !traffic.only_goes_out()
        && !rule.path.parts.iter().any(each)
        && traffic.names_protocol()
}

#[cfg(test)]
mod tests;
