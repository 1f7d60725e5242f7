//! The arguments of `set`.

use limiter_api::limits::SetLimit;

/// Arguments of `set`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "limiter set [OPTIONS] [ADDRESS|PREFIX] <RATE>")]
pub(crate) struct Set {
    #[command(flatten)]
    limit: SetLimit,
    /// Packets or bytes at once, as in 200, 10k or 60kB [default: the amount of RATE]
    // In the help it stands before `count`. Its unit is that of the rate.
    #[arg(long, value_name = "N", allow_hyphen_values = true, display_order = 4)]
    pub(crate) burst: Option<String>,
}

impl Set {
    /// The limit without its burst. Of two words the first is the address, whatever options stand
    /// between them; one alone is the rate.
    pub(crate) fn limit(&self) -> SetLimit {
        let mut limit = self.limit.clone();
        if limit.rate.is_empty() {
            limit.rate = limit.source.take().unwrap_or_default();
        }
        limit
    }
}
