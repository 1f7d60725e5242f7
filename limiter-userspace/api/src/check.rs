//! The check of a packet of a source as it would be decided now: the one answer that is reported in
//! headers, too.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::explain::AskExplain;
use super::lists::ListName;
use super::words;

/// The query of `GET /v1/check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CheckSource {
    /// An address.
    #[param(value_type = words::AnySource)]
    pub address: String,
    /// Bytes of the frame that is asked about; the shortest of Ethernet when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::FrameLength>)]
    pub length: Option<u64>,
    /// Destination of the packet, as for `GET /v1/explain`; without it, the source alone is looked
    /// at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Port>)]
    pub to: Option<String>,
    /// TCP flags, as for `GET /v1/explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::TcpFlags>)]
    pub flags: Option<String>,
    /// Destination address, as for `GET /v1/explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Destination>)]
    pub destination: Option<String>,
    /// Interface, as for `GET /v1/explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::InterfaceName>)]
    pub interface: Option<String>,
}

/// `GET /v1/check`: what would become of a packet of a source now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checked {
    /// The source: an IPv4 address or an IPv6 /64.
    pub source: String,
    /// True if it would pass, as far as was looked: 200, or 429.
    pub passes: bool,
    /// Reason of the answer, of those of `GET /v1/stats`.
    pub reason: String,
    /// The rule that the source falls under, if it was asked.
    pub rule: Option<String>,
    /// The list that it is on, before any rule.
    pub listed: Option<ListName>,
    /// Action for packets over the limits of the rule.
    pub action: Option<String>,
    /// Unit of `limit` and `remaining`: `packets` or `bytes`.
    pub count: Option<String>,
    /// `X-RateLimit-Limit`: what may come at once.
    pub limit: Option<u64>,
    /// `X-RateLimit-Remaining`: what would pass at once now.
    pub remaining: Option<u64>,
    /// `X-RateLimit-Reset`: whole seconds, rounded up, until `limit` is there again.
    pub reset_in_seconds: Option<u64>,
    /// `Retry-After`: whole seconds, rounded up and at least 1, until such a packet would pass.
    /// None for one that passes, and where no time makes it pass.
    pub retry_after_seconds: Option<u64>,
    /// True if nothing else can change the answer but other packets.
    pub exact: bool,
    /// Other things that such a packet may meet; empty for an exact answer.
    pub not_looked_at: Vec<String>,
}

impl From<&CheckSource> for AskExplain {
    fn from(asked: &CheckSource) -> Self {
        let CheckSource { address, length, to, flags, destination, interface } = asked.clone();
        Self { from: address, to, flags, destination, interface, length, ..Self::default() }
    }
}
