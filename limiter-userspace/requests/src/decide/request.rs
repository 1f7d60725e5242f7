//! What decides an ordinary request, of all its descriptors together: it is charged to all of its
//! limits, or to none. A queue decides after that.

use limiter_rules::file::requests::RequestLimit;

use crate::buckets::arithmetic::Left;
use crate::clock::Moment;
use crate::decide::find::targets;
use crate::decide::question::{Answer, Asked, Detail, Refused};
use crate::decide::target::{Context, Target, Waits, is_over};
use crate::limiter::Limiter;
use crate::reports::counters::Unanswered;
use crate::rules::{Domain, Rules};
use crate::shared::rule::Patience;

/// A request on its way to a decision.
pub(crate) struct Request<'a> {
    pub(crate) at: Context<'a>,
    pub(crate) domain: Option<&'a Domain>,
    pub(crate) targets: Vec<Option<Target<'a>>>,
    pub(crate) over: bool,
}

pub(crate) enum Attempt<'a> {
    /// All limits have decided, but that of a queue.
    Settled(Request<'a>),
    /// It waits for the store, and is charged to nothing.
    Waits(Request<'a>),
    /// It cannot be decided.
    Refused(Refused),
}

impl<'a> Attempt<'a> {
    /// The settled request. Only for requests without patience, which never wait.
    pub(crate) fn settled(self) -> Result<Request<'a>, Refused> {
        match self {
            Self::Settled(request) | Self::Waits(request) => Ok(request),
            Self::Refused(why) => Err(why),
        }
    }
}

impl Limiter {
    /// Decides a request. One that is over a limit is charged to none. It does not wait: where a
    /// limit that nodes share has no lease, it does what `on_partition` says.
    ///
    /// # Errors
    ///
    /// Why it cannot be decided.
    pub fn decide(
        &self,
        rules: &Rules,
        asked: &Asked<'_>,
        moment: &Moment,
        detail: Detail,
    ) -> Result<Answer, Refused> {
        let patience = Patience::None(Unanswered::Late);
        Ok(self.attempt(rules, asked, moment, patience).settled()?.answer(asked, detail))
    }

    /// Decides a request by all limits but that of a queue, and charges those.
    pub(crate) fn attempt<'a>(
        &'a self,
        rules: &'a Rules,
        asked: &'a Asked<'_>,
        moment: &Moment,
        patience: Patience,
    ) -> Attempt<'a> {
        let mut request = match Request::new(self, rules, asked, moment, patience) {
            Ok(request) => request,
            Err(why) => return Attempt::Refused(why),
        };
        let mut limits = request.targets.iter().flatten().filter_map(Target::limits);
        if limits.any(|of| !of.limits.are_rates()) {
            request.at.moment = moment.with_wall();
        }
        if request.settle().is_err() {
            return Attempt::Waits(request);
        }
        request.charge_afterwards();
        Attempt::Settled(request)
    }
}

impl<'a> Request<'a> {
    /// A request that was neither checked nor charged yet.
    pub(crate) fn new(
        limiter: &'a Limiter,
        rules: &'a Rules,
        asked: &'a Asked<'_>,
        moment: &Moment,
        patience: Patience,
    ) -> Result<Self, Refused> {
        let at = Context { limiter, moment: *moment, patience, ahead: 0 };
        let domain = rules.domain(asked.domain);
        Ok(Self { at, domain, targets: targets(limiter, domain, asked)?, over: false })
    }

    /// Checks all limits, and charges them if the request is within.
    pub(crate) fn settle(&mut self) -> Result<(), Waits> {
        // A single target is checked by its charge.
        if self.targets.len() > 1 {
            self.look()?;
            if self.over {
                return Ok(());
            }
        }
        for index in 0..self.targets.len() {
            let target = self.targets.get_mut(index).and_then(Option::as_mut);
            let Some(target) = target.filter(|target| target.is_open()) else { continue };
            let charged = target.charge(&self.at);
            // Another thread was faster since the check.
            let failed = target.is_over() && is_over(&self.targets);
            if failed || charged.is_err() {
                self.take_back();
                self.over = failed;
                return charged;
            }
        }
        self.over = is_over(&self.targets);
        Ok(())
    }

    /// Checks all limits, and notes which ones the request exceeds.
    pub(crate) fn look(&mut self) -> Result<(), Waits> {
        for index in 0..self.targets.len() {
            let (before, rest) = self.targets.split_at_mut(index);
            let target = rest.first_mut().and_then(Option::as_mut);
            let Some(target) = target.filter(|target| target.is_open()) else { continue };
            target.meet(before);
            target.look(&self.at)?;
        }
        self.over = is_over(&self.targets);
        Ok(())
    }

    pub(crate) fn take_back(&mut self) {
        for target in self.targets.iter_mut().rev().flatten() {
            target.take_back(self.at.limiter);
        }
    }

    pub(crate) fn left(&self) -> Vec<(RequestLimit, Left)> {
        self.targets.iter().flatten().flat_map(|target| target.left(&self.at)).collect()
    }
}
