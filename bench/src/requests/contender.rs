//! Limiters of requests, each asked about one user by name.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;

use anyhow::{Context as _, Result, anyhow, ensure};
use governor::Quota;
use limiter_requests::{Asked, Descriptor, Detail, Limiter, Moment};
use limiter_rules::file::requests::RequestFile;

/// Requests a second of each user: so many that most pass, and no bucket is full all the time.
pub(super) const RATE: u32 = 100;

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The crate limiter-requests.
    Limiter,
    /// The crate limitador.
    Limitador,
    /// The crate governor.
    Governor,
}

/// Decides about a user: true if the request passes.
pub(super) type Decide = Box<dyn Fn(&str) -> Result<bool> + Send + Sync>;

impl Contender {
    pub(super) const ALL: [Self; 3] = [Self::Limiter, Self::Limitador, Self::Governor];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Limiter => "limiter",
            Self::Limitador => "limitador",
            Self::Governor => "governor",
        }
    }

    /// A limiter without users yet, and with room for so many.
    pub(super) fn start(self, users: usize) -> Result<Decide> {
        Ok(match self {
            Self::Limiter => limiter(users)?,
            Self::Limitador => limitador(users)?,
            Self::Governor => governor(),
        })
    }
}

fn limiter(users: usize) -> Result<Decide> {
    let text =
        format!("domain: bench\ndescriptors: [{{key: user, rate_limit: {{rate: {RATE}/s}}}}]\n");
    let (file, errors) = RequestFile::check("bench.yaml", text.as_bytes());
    ensure!(errors.is_empty(), "{errors:?}");
    let limiter = Limiter::new(2 * users)?;
    limiter.apply(&[("bench.yaml".to_owned(), file)], &Moment::now())?;
    Ok(Box::new(move |user| {
        // As the server does it: the rules in force, a request, both clocks.
        let entries = [("user", user)].into_iter().collect();
        let descriptor = Descriptor { entries, ..Descriptor::default() };
        let descriptors = [descriptor].into_iter().collect();
        let asked = Asked { domain: "bench", descriptors, hits: 1 };
        let rules = limiter.rules();
        let answer = limiter.decide(&rules, &asked, &Moment::now(), Detail::Decision)?;
        Ok(!black_box(answer).over)
    }))
}

fn limitador(users: usize) -> Result<Decide> {
    let limiter = limitador::RateLimiter::new(u64::try_from(2 * users)?);
    let none: [limitador::limit::Predicate; 0] = [];
    let user = "user".try_into().context("an expression of limitador")?;
    let limit = limitador::limit::Limit::new("bench", RATE.into(), 1, none, [user]);
    ensure!(limiter.add_limit(limit), "limitador has the limit already");
    let namespace = "bench".into();
    Ok(Box::new(move |user| {
        let asked = HashMap::from([("user".to_owned(), user.to_owned())]).into();
        let answer = limiter
            .check_rate_limited_and_update(&namespace, &asked, 1)
            .map_err(|error| anyhow!("limitador: {error}"))?;
        Ok(!black_box(answer).limited)
    }))
}

fn governor() -> Decide {
    let quota = Quota::per_second(NonZeroU32::new(RATE).unwrap_or(NonZeroU32::MIN));
    let limiter = governor::RateLimiter::<String, _, _>::keyed(quota);
    Box::new(move |user| Ok(black_box(limiter.check_key(&user.to_owned())).is_ok()))
}
