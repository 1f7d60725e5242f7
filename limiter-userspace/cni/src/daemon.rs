//! The limits that the daemon has for containers.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use limiter_api::client::{Client, ClientError};
use limiter_api::limits::{LimitEntry, Limits, Origin, SetLimit, UnsetLimit};
use limiter_api::rules::Changed;
use limiter_api::status::Status;
use limiter_datapath::{DatapathError, Interface, give_fq};
use limiter_text::pattern::Pattern;

use crate::call::Attachment;
use crate::config::{Config, DaemonAway, Wanted};
use crate::failure::{Failure, code};

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time for the daemon to find a cable: it usually takes some hundredths of a second.
const ATTACHED_WITHIN: Duration = Duration::from_secs(5);

/// Beginning of the names of all limits of this plugin.
const OURS: &str = "cni/";

/// The daemon, and the network of a configuration.
pub(crate) struct Daemon<'a> {
    client: Client,
    config: &'a Config,
}

/// A limit that the daemon has for a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    pub(crate) name: String,
    /// The host's end of the cable.
    pub(crate) interface: String,
    pub(crate) entry: LimitEntry,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let again = is_away(&error) || matches!(&error, ClientError::Refused { status: 409, .. });
        let text = match &error {
            ClientError::Missing(socket) => format!(
                "no daemon at {}: start `limiter run --iface 'veth*' --hook tc --direction both \
                 --rules FILE`, name its socket in the field `socket`, or write \"daemonAway\": \
                 \"unlimited\"",
                socket.display()
            ),
            _ => error.to_string(),
        };
        Self::new(if again { code::AGAIN } else { code::REFUSED }, text)
    }
}

fn is_away(error: &ClientError) -> bool {
    error.no_daemon() || error.no_answer() || matches!(error, ClientError::Timeout { .. })
}

impl<'a> Daemon<'a> {
    pub(crate) fn of(config: &'a Config) -> Self {
        Self { client: Client::new(config.socket.clone(), PATIENCE), config }
    }

    /// The name of the limits of an attachment.
    pub(crate) fn name(&self, at: &Attachment) -> String {
        format!("{}{}/{}", self.network(), at.container, at.interface)
    }

    /// Beginning of the names of all limits of the network.
    fn network(&self) -> String {
        format!("{OURS}{}/", self.config.name)
    }

    /// Whether the daemon answers.
    pub(crate) fn status(&self) -> Result<Status, ClientError> {
        self.client.get("/v1/status")
    }

    /// True if a container may go without limits because of this error.
    pub(crate) fn may_go_without(&self, error: &ClientError) -> bool {
        self.config.daemon_away == DaemonAway::Unlimited && is_away(error)
    }

    /// All limits of this plugin, of whatever network.
    pub(crate) fn kept(&self) -> Result<Vec<Kept>, ClientError> {
        let all: Limits = self.client.get("/v1/limits")?;
        Ok(all.limits.into_iter().filter_map(Kept::of).collect())
    }

    /// Waits until the daemon limits a cable in these directions.
    pub(crate) fn wait_for(
        &self,
        cable: &Interface,
        wanted: &[Wanted],
    ) -> Result<Result<(), Failure>, ClientError> {
        let deadline = Instant::now() + ATTACHED_WITHIN;
        loop {
            let status = self.status()?;
            let Some(missing) = unlimited(&status, &cable.name, wanted) else { return Ok(Ok(())) };
            if !missing.is_coming || Instant::now() >= deadline {
                return Ok(Err(Failure::new(code::NOT_LIMITED, missing.text)));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sets a limit on a cable. Packets over it wait, where they can; what the answer says is for
    /// the runtime's log.
    pub(crate) fn set(
        &self,
        cable: &Interface,
        name: &str,
        wanted: Wanted,
    ) -> Result<String, ClientError> {
        let limit = |waits| SetLimit {
            interface: Some(cable.name.clone()),
            shared: true,
            rate: wanted.rate(),
            burst: Some(wanted.burst(waits)),
            direction: Some(wanted.direction.to_owned()),
            name: Some(name.to_owned()),
            delay_ms: waits.then_some(self.config.delay_ms),
            ..SetLimit::default()
        };
        let put = |waits| self.client.put::<Changed>("/v1/limits", &limit(waits));
        let said = |changed: Changed| changed.done.unwrap_or_default();
        if self.config.delay_ms == 0 {
            return put(false).map(said);
        }
        if wanted.direction == "out" {
            // If this fails, the daemon refuses the wait below, and says why.
            drop(give_fq(cable, wanted.waiting(self.config.delay_ms)));
        }
        match put(true) {
            // Not in this state of rules, or not on this machine: the second answer says which.
            Err(ClientError::Refused { status: 400 | 409, message }) => put(false).map(|changed| {
                let why = message.strip_prefix("not set: ").unwrap_or(&message);
                format!("{}; packets over it are dropped: {why}", said(changed))
            }),
            answer => answer.map(said),
        }
    }

    /// An error of the daemon, which counts in bytes, for the author of fields in bits.
    pub(crate) fn in_bits(error: ClientError, wanted: Wanted) -> ClientError {
        let field = if wanted.direction == "out" { "ingress" } else { "egress" };
        match error {
            ClientError::Refused { status: status @ 400, message } => {
                let note = format!("{field}Rate and {field}Burst are in bits, this is in bytes");
                ClientError::Refused { status, message: format!("{note}: {message}") }
            }
            error => error,
        }
    }

    /// Removes some limits of all. One that is gone already is no error.
    pub(crate) fn remove(
        &self,
        all: &[Kept],
        which: impl Fn(&Kept) -> bool,
    ) -> Result<(), ClientError> {
        for Kept { interface, entry, .. } in all.iter().filter(|kept| which(kept)) {
            let limit = UnsetLimit {
                interface: Some(interface.clone()),
                direction: entry.direction.clone(),
                shared: true,
                ..UnsetLimit::default()
            };
            match self.client.delete::<Changed>("/v1/limits", &limit) {
                Ok(_) | Err(ClientError::Refused { status: 404, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// True of limits of the network that belong to none of these attachments.
    pub(crate) fn is_garbage(&self, kept: &Kept, valid: &BTreeSet<Attachment>) -> bool {
        let network = self.network();
        let of = kept.name.strip_prefix(&network).and_then(|rest| rest.split_once('/'));
        of.is_some_and(|(container, interface)| {
            let (container, interface) = (container.to_owned(), interface.to_owned());
            !valid.contains(&Attachment { container, interface })
        })
    }
}

impl Kept {
    /// The limit of this plugin that an entry is.
    pub(crate) fn of(entry: LimitEntry) -> Option<Self> {
        let name = entry.name.clone().filter(|name| name.starts_with(OURS))?;
        let interface = entry.source.split(' ').find_map(|key| key.strip_prefix("interface="))?;
        let interface = interface.to_owned();
        (entry.origin == Origin::Cli).then_some(Self { name, interface, entry })
    }

    /// True if a container that is gone left it: its cable is gone, or belongs to `name` now.
    pub(crate) fn is_left(&self, cable: &Interface, name: &str) -> bool {
        if self.interface == cable.name {
            return self.name != name;
        }
        matches!(Interface::query(&self.interface), Err(DatapathError::NoInterface(_)))
    }
}

/// Why a cable is not limited as it should be.
pub(crate) struct Missing {
    /// True if it may be in a moment.
    is_coming: bool,
    pub(crate) text: String,
}

/// What keeps a cable from being limited in these directions; `None` if nothing does.
pub(crate) fn unlimited(status: &Status, cable: &str, wanted: &[Wanted]) -> Option<Missing> {
    let at: Vec<_> = status.interfaces.iter().filter(|at| at.name == cable).collect();
    let is_at = |mode: &str, direction: &str| (mode == "tc out") == (direction == "out");
    let is_limited =
        |direction: &str| at.iter().any(|at| at.attached && is_at(&at.mode, direction));
    let direction = wanted.iter().find(|of| !is_limited(of.direction))?.direction;
    let matches = |word: &String| Pattern::of(word).is_some_and(|pattern| pattern.matches(cable));
    let error = at.iter().find_map(|at| at.error.as_ref().filter(|_| is_at(&at.mode, direction)));
    let text = match error {
        Some(error) => format!("{cable} is not limited: {error}"),
        None => format!(
            "the daemon limits nothing on {cable} in direction {direction}: start it with \
             `--hook tc --direction both` and an --iface that matches, as in 'veth*'"
        ),
    };
    Some(Missing { is_coming: !at.is_empty() || status.patterns.iter().any(matches), text })
}
