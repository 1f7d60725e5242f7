//! Requests of the view to the daemon.

use limiter_api::bans::{Unban, Unbanned};
use limiter_api::client::{Client, ClientError};
use limiter_api::events::Events;
use limiter_api::limits::{SetLimit, UnsetLimit};
use limiter_api::lists::{ListName, ListsChanged, SetList, UnsetList};
use limiter_api::render;
use limiter_api::requests::Requests;
use limiter_api::rules::{Changed, Session};
use limiter_api::sources::source::SourceView;
use limiter_api::sources::top::{AskTop, Top};
use limiter_api::sources::{By, MOST_SOURCES};
use limiter_api::stats::Stats;
use limiter_api::status::Status;
use limiter_api::status::history::{AskHistory, History};
use limiter_daemon::ssh;

type Result<T> = std::result::Result<T, ClientError>;

/// Question of the view: which sources to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    pub(super) by: By,
    pub(super) within: Option<String>,
    pub(super) watch: Option<String>,
    /// True if some of them are left out afterwards, so that all that stand out are needed.
    pub(super) many: bool,
}

/// A change for a source, which is named as the daemon names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Drop everything from it, for so many seconds or for ever.
    Deny {
        source: String,
        seconds: Option<u64>,
    },
    /// Let all of it pass for so many seconds.
    Allow {
        source: String,
        seconds: u64,
    },
    Limit {
        source: String,
        rate: String,
    },
    Unlist {
        source: String,
    },
    /// End its ban.
    Unban {
        source: String,
    },
    /// Remove the limit that `limiter set` made.
    Unset {
        source: String,
    },
}

pub(super) trait Link {
    fn top(&self, asking: &Asking) -> Result<Top>;
    fn status(&self) -> Result<Status>;
    /// The history after a time of the daemon's clock.
    fn history(&self, after: Option<u64>) -> Result<History>;
    fn stats(&self) -> Result<Stats>;
    fn events(&self) -> Result<Events>;
    fn requests(&self) -> Result<Requests>;
    fn source(&self, address: &str) -> Result<SourceView>;
    /// Carries out an action, and reports what was done.
    fn act(&self, action: &Action) -> Result<String>;
}

/// Rows that are asked for: more than a screen has.
const ROWS: u32 = 100;

/// The address of a source: an IPv6 source is named by its /64.
pub(super) fn address(source: &str) -> &str {
    source.split_once('/').map_or(source, |(address, _)| address)
}

impl Link for Client {
    fn top(&self, asking: &Asking) -> Result<Top> {
        let rows = if asking.many { MOST_SOURCES } else { ROWS };
        let (prefix, watch) = (asking.within.clone(), asking.watch.as_deref().map(address));
        let watch = watch.map(str::to_owned);
        self.ask("/v1/top", &AskTop { by: asking.by, limit: Some(rows), prefix, watch })
    }

    fn status(&self) -> Result<Status> {
        self.get("/v1/status")
    }

    fn history(&self, after: Option<u64>) -> Result<History> {
        self.ask("/v1/history", &AskHistory { after })
    }

    fn stats(&self) -> Result<Stats> {
        self.get("/v1/stats")
    }

    fn events(&self) -> Result<Events> {
        self.get("/v1/events")
    }

    fn requests(&self) -> Result<Requests> {
        self.get("/v1/requests")
    }

    fn source(&self, source: &str) -> Result<SourceView> {
        self.get(&format!("/v1/sources/{}", address(source)))
    }

    fn act(&self, action: &Action) -> Result<String> {
        let list = |list, source: &String, seconds| {
            self.put::<ListsChanged>(
                "/v1/lists",
                &SetList {
                    list,
                    sources: vec![source.clone()],
                    seconds,
                    session: ssh::own_session(),
                    ..SetList::default()
                },
            )
        };
        match action {
            Action::Deny { source, seconds } => {
                list(ListName::Deny, source, *seconds)?;
                Ok(match seconds {
                    Some(left) => format!("{source} is denied for {}", render::seconds(*left)),
                    None => format!("{source} is denied"),
                })
            }
            Action::Allow { source, seconds } => {
                list(ListName::Allow, source, Some(*seconds))?;
                Ok(format!("{source} is allowed for {}", render::seconds(*seconds)))
            }
            Action::Limit { source, rate } => {
                let limit = SetLimit {
                    source: Some(source.clone()),
                    rate: rate.clone(),
                    session: ssh::own_session(),
                    ..SetLimit::default()
                };
                let changed: Changed = self.put("/v1/limits", &limit)?;
                Ok(format!("{source} has {rate}, generation {}", changed.generation))
            }
            Action::Unlist { source } => {
                let (peer, port) = Session::words(ssh::own_session());
                let named = Some(source.clone());
                let asked = UnsetList { source: named, peer, port, ..UnsetList::default() };
                self.delete::<ListsChanged>("/v1/lists", &asked)?;
                Ok(format!("{source} is on no list any more"))
            }
            Action::Unban { source } => {
                self.delete::<Unbanned>("/v1/bans", &Unban { source: source.clone() })?;
                Ok(format!("the bans of {source} are forgotten"))
            }
            Action::Unset { source } => {
                let (peer, port) = Session::words(ssh::own_session());
                let named = Some(source.clone());
                let asked = UnsetLimit { source: named, peer, port, ..UnsetLimit::default() };
                self.delete::<Changed>("/v1/limits", &asked)?;
                Ok(format!("the limit that was set for {source} is gone"))
            }
        }
    }
}
