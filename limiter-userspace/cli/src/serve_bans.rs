//! Bans that `limiter serve` asks the daemon for.

use std::time::Duration;

use limiter_daemon::api::bans::{
    RequestBanAnswer, RequestBanBecame, RequestBans, SetRequestBan, SetRequestBans,
};
use limiter_daemon::control::Client;
use limiter_requests::{AskedBan, BanAnswer, Bans};

/// The longest wait for the daemon: other bans wait meanwhile, and no request does.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of the keys and values of a rule, and of its domain.
const MOST_TEXT: usize = 300;

/// The daemon, asked over its socket.
#[derive(Debug)]
pub(super) struct OverSocket(Client);

impl OverSocket {
    pub(super) fn new(client: &Client) -> Self {
        Self(client.within(PATIENCE))
    }
}

impl Bans for OverSocket {
    fn ban(&self, asked: &[AskedBan]) -> Result<Vec<BanAnswer>, String> {
        let bans = asked.iter().map(set).collect();
        let done: RequestBans = self
            .0
            .put("/v1/bans/requests", &SetRequestBans { bans })
            .map_err(|error| error.to_string())?;
        let answer = |RequestBanAnswer { became, why }: RequestBanAnswer| match became {
            RequestBanBecame::Made => BanAnswer::Made,
            RequestBanBecame::InForce => BanAnswer::InForce,
            RequestBanBecame::OverBudget => BanAnswer::OverBudget,
            RequestBanBecame::Refused => BanAnswer::Refused(why.unwrap_or_default()),
        };
        Ok(done.answers.into_iter().map(answer).collect())
    }
}

fn set(ban: &AskedBan) -> SetRequestBan {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let text = |text: &str| text.get(..text.floor_char_boundary(MOST_TEXT)).map(str::to_owned);
    SetRequestBan {
        source: ban.source.to_string(),
        domain: text(&ban.domain).unwrap_or_default(),
        rule: text(&ban.rule).unwrap_or_default(),
        first_ms: millis(ban.terms.first),
        longest_ms: millis(ban.terms.longest),
        memory_ms: millis(ban.terms.memory),
    }
}
