//! Describes rules for people.

use limiter_api::limits::{LimitView, UpperView};
use limiter_rules::Terms;
use limiter_rules::compile::{compile, display_rate, effective_of_spec};
use limiter_rules::model::{
    LimitList, Limits, Meter, RuleLimit, limit_text, meter_text, over_text,
};
use limiter_rules::read_back::Known;

/// The fields that all views of a rule have.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) limit: String,
    pub(crate) burst: Option<u64>,
    pub(crate) count: Option<String>,
    pub(crate) effective_per_second: Option<f64>,
    pub(crate) limits: Vec<LimitView>,
    pub(crate) action: Option<String>,
    pub(crate) budget: Option<String>,
}

impl Described {
    /// Adds a word before each rate that is not exact.
    #[must_use]
    pub(crate) fn known(mut self, known: Known) -> Self {
        let about = match known {
            Known::Exactly => return self,
            Known::About => "about",
            Known::Part => "here about",
        };
        let say = |text: &mut String| *text = format!("{about} {text}");
        say(&mut self.limit);
        for limit in &mut self.limits {
            say(&mut limit.text);
            say(&mut limit.rate);
        }
        self
    }
}

/// Describes a rule. `max_frame` as in [`compile`].
pub(crate) fn describe(terms: &Terms, max_frame: u64) -> Described {
    match terms {
        Terms::Unlimited => Described { limit: "unlimited".to_owned(), ..Described::default() },
        Terms::Budget(name) => Described {
            limit: format!("budget {name}"),
            budget: Some(name.clone()),
            ..Described::default()
        },
        Terms::Limits(limits) => of_limits(limits, max_frame),
    }
}

pub(super) fn of_limits(limits: &Limits, max_frame: u64) -> Described {
    let views: Vec<_> = limits.limits.iter().map(|limit| view(&limit, max_frame)).collect();
    let mut described = Described { action: Some(over_text(&limits.over)), ..Described::default() };
    if views.is_empty() {
        described.limit = over_text(&limits.over);
    }
    if let Some(first) = views.first() {
        described.limit.clone_from(&first.rate);
        described.burst = first.burst;
        described.count = Some(first.count.clone());
        described.effective_per_second = first.effective_per_second;
    }
    described.limits = views;
    described
}

fn view(limit: &RuleLimit, max_frame: u64) -> LimitView {
    let quota = limit.meter.quota();
    // A limit in force has been compiled before.
    let compiled = compile(&LimitList::from(*limit), false, max_frame).ok();
    let effective = |place: usize| {
        compiled
            .as_ref()
            .and_then(|compiled| compiled.record.limits.get(place))
            .and_then(effective_of_spec)
    };
    LimitView {
        text: limit_text(limit),
        algorithm: limit.meter.algorithm().to_owned(),
        rate: meter_text(&limit.meter),
        count: quota.count.name().to_owned(),
        burst: match &limit.meter {
            Meter::TokenBucket(rate) => Some(rate.burst),
            _ => None,
        },
        effective_per_second: effective(0),
        upper: limit.upper.as_ref().map(|upper| UpperView {
            kind: upper.name().to_owned(),
            rate: display_rate(upper.rate()),
            burst: upper.rate().burst,
            effective_per_second: effective(1),
        }),
    }
}
