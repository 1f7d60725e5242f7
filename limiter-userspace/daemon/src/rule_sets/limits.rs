//! Single limits from the command line: set, removed, or ended by themselves.

use std::sync::Arc;
use std::time::Duration;

use limiter_api::limits::{SetLimit, UnsetLimit};
use limiter_api::lists::ListName;
use limiter_api::render::exact;
use limiter_api::rules::{Changed, Session};
use limiter_common::wire::Count;
use limiter_rules::file::render;
use limiter_rules::model::{
    Direction, Over, SOURCE_MASKS, limited_by_others, over_text, terms_text,
};
use limiter_rules::warnings::Warnings;
use limiter_rules::{
    Path, RateText, Rule, Selector, Subject, Target, Terms, Words, rate_text, target_text,
};
use limiter_text::plain::is_plain;

use super::ground::Ground;
use super::planned::Planned;
use super::state::RuleSets;
use crate::control::Refusal;
use crate::disk::state_dir::EDITS;
use crate::error::ServiceError;
use crate::rule_sets::guard::{self, Caller, Scene};
use crate::rule_sets::layers::Layers;
use crate::rule_sets::limit_ends;
use crate::rule_sets::warnings::cannot_wait;

/// Domain of the file of edits.
const EDITS_DOMAIN: &str = "limiter-set";

impl RuleSets {
    /// Overrides the rule files with a limit.
    pub(crate) fn set(
        &mut self,
        ground: &mut Ground<'_>,
        limit: &SetLimit,
    ) -> Result<Changed, Refusal> {
        self.not_on_trial(ground)?;
        let named = limit.words(direction(limit.direction.as_deref())?);
        let target = Target::parse(named)?;
        if let Some(selector) = target.selector
            && let Some(prefix) = self.layers.managed(&selector)
        {
            return Err(ServiceError::Management { selector, prefix }.into());
        }
        let datapath = ground.datapath.get()?;
        if let Some(name) = named.interface
            && datapath.interface_index(name).is_none()
        {
            return Err(ServiceError::NoInterface(name.to_owned()).into());
        }
        let max_frame = datapath.max_frame();
        let count = limit.count.as_deref().map(count).transpose()?;
        let rate = RateText::parse(&limit.rate)?;
        target.ask(rate, count, &limit.rate)?;
        let rate = rate.counting(count, &limit.rate)?;
        let terms = rate.terms(limit.burst, max_frame)?;
        let terms = rate_text::shadowed(terms, limit.shadow)?;
        let terms = rate_text::rejecting(terms, limit.reject)?;
        let terms = rate_text::delaying(terms, limit.delay_ms)?;
        let name = limit.name.as_deref().map(name).transpose()?;
        let path = target.path;
        let rule = Arc::new(Rule { name, ..Rule::new(path.clone(), terms) });
        let mut layers = self.layers.clone();
        layers.ends.remove(&path);
        if let Some(seconds) = limit.seconds {
            if seconds == 0 {
                return Err(ServiceError::NoTime.into());
            }
            layers.ends.insert(path.clone(), limit_ends::now().saturating_add(seconds));
        }
        let before = self.stands(&path);
        let replaced = self.on_path(&path).cloned();
        layers.edits.insert(path.clone(), Arc::clone(&rule));
        if limit.delay_ms.is_some() {
            let set = layers.effective();
            let datapath = ground.datapath.get_mut()?;
            if let Some(why) = cannot_wait(&set, &rule, named.interface, datapath) {
                return Err(ServiceError::CannotWait(why).into());
            }
        }
        let changed =
            self.edit(ground, layers, Caller { session: limit.session, force: limit.force })?;
        let mut done = set_line(&rule, &before, limit.seconds);
        if let Some(over) = replaced.and_then(|replaced| not_taken_over(&replaced, &rule)) {
            done.push_str(&over);
        }
        if rule.terms == Terms::Unlimited && !is_allowed(ground, target.selector)? {
            done.push_str(&self.limited_still(&rule, target.selector));
        }
        if let Some((beside, words)) = self.beside(named) {
            let (path, terms) = (&beside.path, terms_text(&beside.terms));
            let remedy = words.map(|words| format!(": `limiter unset {words}` removes that"));
            done = format!("{done}; {path} has {terms} beside it{}", remedy.unwrap_or_default());
        }
        let done = Some(done);
        let warnings = self.of_this_first(&rule, changed.warnings);
        Ok(Changed { warnings, done, ..changed })
    }

    /// Describes the rules that still limit the sources that this rule does not limit.
    fn limited_still(&self, rule: &Rule, selector: Option<Selector>) -> String {
        let Some(others) = limited_by_others(rule, &self.effective.rule_set()) else {
            return String::new();
        };
        let lifted = selector.map(|selector| format!(": `limiter allow {selector}` lifts all"));
        format!("; limited by others all the same, {others}{}", lifted.unwrap_or_default())
    }

    /// Removes a limit of `limiter set`, or all of them.
    pub(crate) fn unset(
        &mut self,
        ground: &mut Ground<'_>,
        limit: &UnsetLimit,
    ) -> Result<Changed, Refusal> {
        self.not_on_trial(ground)?;
        let named = limit.words(direction(limit.direction.as_deref())?);
        let caller = Caller { session: Session::named(limit.peer, limit.port), force: limit.force };
        if limit.all {
            if named != Words::default() {
                let text = "all: these are all limits of `limiter set`: name no other packets";
                return Err(Refusal::Invalid(text.to_owned()));
            }
            return self.unset_all(ground, caller);
        }
        let target = Target::parse(named)?;
        let path = target.path;
        let mut layers = self.layers.clone();
        layers.ends.remove(&path);
        if let Some(rule) = layers.edits.remove(&path) {
            let changed = self.edit(ground, layers, caller)?;
            return Ok(Changed { done: Some(self.removed(&path, &rule)), ..changed });
        }
        if let Some(selector) = target.selector
            && let Some(prefix) = self.layers.managed(&selector)
        {
            return Err(ServiceError::Management { selector, prefix }.into());
        }
        let error = match self.layers.file.places.get(&Subject::Rule(path.clone())) {
            Some(place) if self.layers.applied => {
                ServiceError::FromApplied { path, place: place.to_string() }
            }
            Some(_) if self.source.paths().is_empty() => {
                ServiceError::FromArgument { path, argument: self.source.names() }
            }
            Some(place) => ServiceError::FromFile { path, place: place.to_string() },
            None => match self.alike(named) {
                Some((option, words)) => ServiceError::NoRuleBut { path, option, words },
                None => ServiceError::NoRule(path),
            },
        };
        Err(error.into())
    }

    /// Removes all limits of `limiter set`.
    fn unset_all(&mut self, ground: &mut Ground<'_>, caller: Caller) -> Result<Changed, Refusal> {
        let mut layers = self.layers.clone();
        layers.ends.clear();
        let edits = std::mem::take(&mut layers.edits);
        if edits.is_empty() {
            let text = "no limit was set: `limiter list` shows where each comes from";
            return Err(Refusal::NotFound(text.to_owned()));
        }
        let changed = self.edit(ground, layers, caller)?;
        let removed: Vec<_> = edits.iter().map(|(path, rule)| self.removed(path, rule)).collect();
        Ok(Changed { done: Some(removed.join("; ")), ..changed })
    }

    /// What holds for the packets of a limit that was removed, and what held before.
    fn removed(&self, path: &Path, rule: &Rule) -> String {
        format!("{path}: {}, was {}", self.stands(path), terms_text(&rule.terms))
    }

    /// The option in which alone a rule of `limiter set` differs from the one that is named, with
    /// the words by which `limiter unset` removes it.
    fn alike(&self, named: Words<'_>) -> Option<(&'static str, String)> {
        let others = [Direction::In, Direction::Out, Direction::Both]
            .into_iter()
            .filter(|other| *other != named.direction)
            .map(|direction| ("--direction", Words { direction, ..named }));
        let shared = ("--shared", Words { shared: !named.shared, ..named });
        let mut alike = std::iter::once(shared).chain(others);
        alike.find_map(|(option, named)| {
            let path = Target::parse(named).ok()?.path;
            let is_set = self.layers.edits.contains_key(&path);
            Some((option, is_set.then(|| target_text::words(&path)).flatten()?))
        })
    }

    /// The rule that differs only in `--shared`, with the words by which `limiter unset` removes
    /// it, if it can.
    fn beside(&self, named: Words<'_>) -> Option<(&Arc<Rule>, Option<String>)> {
        let path = Target::parse(Words { shared: !named.shared, ..named }).ok()?.path;
        let rule = self.on_path(&path).filter(|rule| rule.path == path)?;
        let is_set = self.layers.edits.contains_key(&path);
        Some((rule, is_set.then(|| target_text::words(&path)).flatten()))
    }

    /// Warnings caused by a rule; those about the rule itself replace lines that name another rule
    /// with the same kind of warning.
    fn of_this_first(&self, rule: &Rule, news: Vec<String>) -> Vec<String> {
        let of_this = Warnings::of_rule(rule);
        let is_reported = |line: &String| {
            let mut short = self.effective.judged.in_short();
            short.any(|(kind, text)| {
                text == *line && of_this.iter().any(|warning| warning.kind == kind)
            })
        };
        let news = news.into_iter().filter(|line| !is_reported(line));
        of_this.iter().map(|warning| warning.text(0)).chain(news).collect()
    }

    /// The rule that applies to the packets of a path: the rule on this path or, for sources alone,
    /// the one around them.
    fn on_path(&self, path: &Path) -> Option<&Arc<Rule>> {
        match path.selector() {
            Some(selector) => self.effective.resolve(&selector).map(|effective| &effective.rule),
            None => self.effective.on_other_keys().map(|at| &at.rule).find(|at| at.path == *path),
        }
    }

    /// Describes the rule of [`RuleSets::on_path`].
    fn stands(&self, path: &Path) -> String {
        match self.on_path(path) {
            None => "no limit".to_owned(),
            Some(rule) if rule.path == *path => terms_text(&rule.terms),
            Some(rule) => format!("{} ({})", terms_text(&rule.terms), rule.path),
        }
    }

    /// Puts changed edits in force and stores them, both or neither.
    fn edit(
        &mut self,
        ground: &mut Ground<'_>,
        layers: Layers,
        caller: Caller,
    ) -> Result<Changed, ServiceError> {
        let max_frame = ground.datapath.get()?.max_frame();
        let text = render(EDITS_DOMAIN, &layers.edits(), max_frame)?;
        // Checked before anything is written, so that a bad request leaves no trace.
        let planned = Planned::new(ground.datapath, ground.heap_trim, ground.lists, layers)?;
        let before = ground.scene(&self.layers, &self.effective, None)?;
        let after = Scene { layers: &planned.layers, effective: &planned.effective, ..before };
        caller.authorize(guard::objection_to_edit(before, after, caller.session.as_ref()))?;
        let prepared = ground.state.prepare(EDITS, &text)?;
        // The ends are stored before the edits: an end without its edit has no effect.
        limit_ends::store(ground.state, &planned.layers)?;
        self.apply_and_keep(ground, planned, prepared)?;
        Ok(self.changed(ground.datapath.get()?))
    }

    /// Ends the limits whose time has passed.
    pub(crate) fn end_limits(&mut self, ground: &mut Ground<'_>) -> Result<(), ServiceError> {
        let now = limit_ends::now();
        let over: Vec<Path> = self.layers.over(now).cloned().collect();
        // During a trial no other change is possible; a trial is bounded in time.
        if over.is_empty() || self.not_on_trial(ground).is_err() {
            return Ok(());
        }
        let mut layers = self.layers.clone();
        for path in &over {
            layers.ends.remove(path);
            layers.edits.remove(path);
        }
        self.edit(ground, layers, Caller { session: None, force: true })?;
        for path in over {
            tracing::info!("the time of the limit on {path} is over: {}", self.stands(&path));
        }
        Ok(())
    }
}

/// Returns true if the allow list exempts a source from all limits.
fn is_allowed(ground: &Ground<'_>, selector: Option<Selector>) -> Result<bool, ServiceError> {
    let now = ground.datapath.get()?.now();
    let list = selector.and_then(|selector| ground.lists.of(&selector, now));
    Ok(list == Some(ListName::Allow))
}

/// Parses the name of a unit.
fn count(word: &str) -> Result<Count, ServiceError> {
    rate_text::count_named(word).ok_or_else(|| ServiceError::Word {
        word: "count",
        problem: format!("{word:?} is no unit: write packets, bytes, syns or flows"),
    })
}

/// Parses the name of a direction; `in` if none is given.
fn direction(word: Option<&str>) -> Result<Direction, ServiceError> {
    let Some(word) = word else { return Ok(Direction::default()) };
    Direction::named(word).ok_or_else(|| ServiceError::Word {
        word: "direction",
        problem: format!("{word:?} is no direction: write in, out or both"),
    })
}

/// Checks the name of a rule.
fn name(text: &str) -> Result<Box<str>, ServiceError> {
    if !text.is_empty() && text.chars().all(is_plain) {
        return Ok(text.into());
    }
    Err(ServiceError::Word {
        word: "name",
        problem: "it is empty, or has characters that are not seen: write a plain name".to_owned(),
    })
}

/// The action of the previous rule that the new one does not have; bans in force continue.
fn not_taken_over(before: &Rule, rule: &Rule) -> Option<String> {
    let over = |rule: &Rule| rule.terms.limits().map(|limits| limits.over.clone());
    let (had, has) = (over(before)?, over(rule));
    if before.path != rule.path || had == Over::Drop || Some(&had) == has.as_ref() {
        return None;
    }
    let text = over_text(&had);
    Some(match had {
        Over::Ban(_) => {
            format!("; the rule's `{text}` is not in it: bans in force go on, and no new ones come")
        }
        _ => format!("; the rule's `{text}` is not in it"),
    })
}

/// Describes the new limit, the previous one, and the sources of the limit.
fn set_line(rule: &Rule, before: &str, seconds: Option<u64>) -> String {
    let path = &rule.path;
    let time = seconds.map_or_else(String::new, |seconds| {
        format!(" for {}", exact(Duration::from_secs(seconds)))
    });
    let text = format!("{path}: {}{time}, was {before}", terms_text(&rule.terms));
    let Some((masks, net)) = path.source() else {
        return format!("{text}; all of them share it");
    };
    let own = if net.is_none_or(|net| net.addr().is_ipv6()) {
        "each address, or IPv6 /64,"
    } else {
        "each address"
    };
    match net {
        _ if rule.terms == Terms::Unlimited => text,
        Some(net) if masks.of(&net) == Some(net.prefix_len()) && masks != SOURCE_MASKS => {
            format!("{text}; all of {net} shares it")
        }
        Some(net) if Selector::Prefix(net).is_source() && net.addr().is_ipv6() => {
            format!("{text}; all addresses of the /64 share it")
        }
        Some(net) if Selector::Prefix(net).is_source() => text,
        Some(net) => format!("{text}; {own} of {net} has it"),
        None => format!("{text}; {own} has it"),
    }
}
