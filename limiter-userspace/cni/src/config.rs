//! The network configuration: what its author wrote, and what the runtime added.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::call::{Attachment, is_name};
use crate::failure::{Failure, code};

/// Versions of the specification whose calls the plugin answers.
pub(crate) const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The newest of [`VERSIONS`].
const NEWEST: &str = "1.1.0";

/// Fields that the specification or its conventions define, or that runtimes add, and that say
/// nothing to this plugin.
const OTHERS: [&str; 11] = [
    "args",
    "capabilities",
    "cniVersions",
    "deviceID",
    "disableCheck",
    "disableGC",
    "dns",
    "ipMasq",
    "ipam",
    "pciBusID",
    "type",
];

/// A network configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    #[serde(default)]
    cni_version: String,
    #[serde(default)]
    pub(crate) name: String,
    /// The result of the plugins before this one.
    pub(crate) prev_result: Option<Value>,
    #[serde(default, rename = "runtimeConfig")]
    runtime: RuntimeConfig,
    /// The daemon's socket.
    #[serde(default = "socket")]
    pub(crate) socket: PathBuf,
    /// What becomes of a container while there is no daemon.
    #[serde(default)]
    pub(crate) daemon_away: DaemonAway,
    /// Milliseconds that packets wait at most; 0 drops them.
    #[serde(default = "delay_ms")]
    pub(crate) delay_ms: u64,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Option<Vec<Valid>>,
    #[serde(flatten)]
    bandwidth: Bandwidth,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct RuntimeConfig {
    bandwidth: Option<Bandwidth>,
}

/// What a container gets (ingress) and sends (egress): in bits per second, and bits at once. 0 for
/// what is not limited or not said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bandwidth {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
    shaped_subnets: Vec<String>,
    unshaped_subnets: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Valid {
    #[serde(rename = "containerID")]
    container: String,
    #[serde(rename = "ifname")]
    interface: String,
}

/// What becomes of a container while there is no daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DaemonAway {
    /// The container is not added.
    #[default]
    Fail,
    /// It is added, and nothing limits it.
    Unlimited,
}

/// A limit on one direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// As the host's end sees it: `out` for what the container gets.
    pub(crate) direction: &'static str,
    /// Bytes per second.
    rate: u64,
    /// Bytes at once, if that is said.
    burst: Option<u64>,
}

fn socket() -> PathBuf {
    "/run/limiter/limiter.sock".into()
}

const fn delay_ms() -> u64 {
    100
}

impl Config {
    /// Reads a configuration. DEL and GC take one that the others refuse, so that a mistake in a
    /// file keeps no container from being removed.
    pub(crate) fn read(input: &[u8], strict: bool) -> Result<Self, Failure> {
        let config: Self = serde_json::from_slice(input).map_err(|error| {
            let code = if error.is_data() { code::CONFIG } else { code::DECODE };
            Failure::new(code, format!("the network configuration: {error}"))
        })?;
        if !VERSIONS.contains(&config.cni_version.as_str()) {
            let text = format!(
                "cniVersion is {:?}: give one of {}",
                config.cni_version,
                VERSIONS.join(", ")
            );
            return Err(Failure::new(code::VERSION, text));
        }
        if !is_name(&config.name) {
            let text = format!("name is {:?}: give the network's name", config.name);
            return Err(Failure::new(code::CONFIG, text));
        }
        if strict {
            config.refuse_unknown()?;
        }
        Ok(config)
    }

    fn refuse_unknown(&self) -> Result<(), Failure> {
        let is_unknown =
            |field: &&String| !OTHERS.contains(&field.as_str()) && !field.starts_with("cni.dev/");
        if let Some(field) = self.others.keys().find(is_unknown) {
            let value = self.others.get(field).unwrap_or(&Value::Null);
            let text = format!(
                "there is no field {field:?} (its value is {value}): remove it; limits are \
                 ingressRate, ingressBurst, egressRate and egressBurst"
            );
            return Err(Failure::new(code::FIELD, text));
        }
        if self.delay_ms > 2_000 {
            let text = format!("delayMs is {}: give 0 to 2000", self.delay_ms);
            return Err(Failure::new(code::CONFIG, text));
        }
        Ok(())
    }

    /// The limits of the container, if it has any: those of the file, or else the runtime's.
    pub(crate) fn wanted(&self) -> Result<Vec<Wanted>, Failure> {
        let given = self.runtime.bandwidth.as_ref();
        let given = given.filter(|_| self.bandwidth == Bandwidth::default());
        let Bandwidth { ingress_rate, ingress_burst, egress_rate, egress_burst, .. } =
            *given.unwrap_or(&self.bandwidth);
        for (field, subnets) in [
            ("shapedSubnets", &given.unwrap_or(&self.bandwidth).shaped_subnets),
            ("unshapedSubnets", &given.unwrap_or(&self.bandwidth).unshaped_subnets),
        ] {
            if !subnets.is_empty() {
                let text = format!(
                    "{field} {subnets:?}: limiter-cni limits whole cables; write rules with \
                     `interface` and `remote_address` for parts of their packets"
                );
                return Err(Failure::new(code::FIELD, text));
            }
        }
        let both = [
            ("ingress", "out", ingress_rate, ingress_burst),
            ("egress", "in", egress_rate, egress_burst),
        ];
        let limited = both.into_iter().filter(|(.., rate, burst)| (*rate, *burst) != (0, 0));
        limited
            .map(|(name, direction, rate, burst)| Wanted::new(name, direction, rate, burst))
            .collect()
    }

    /// The result of the plugins before this one.
    pub(crate) fn result(&self) -> Result<&Value, Failure> {
        self.prev_result.as_ref().ok_or_else(|| {
            let text = "there is no prevResult: put limiter-cni behind the plugin that lays the \
                        cable, in the same list of plugins";
            Failure::new(code::CONFIG, text)
        })
    }

    /// The attachments that a GC leaves.
    pub(crate) fn valid(&self) -> Result<BTreeSet<Attachment>, Failure> {
        let Some(valid) = &self.valid else {
            let text = "GC needs cni.dev/valid-attachments";
            return Err(Failure::new(code::CONFIG, text));
        };
        let of = |Valid { container, interface }: &Valid| Attachment {
            container: container.clone(),
            interface: interface.clone(),
        };
        Ok(valid.iter().map(of).collect())
    }
}

impl Wanted {
    /// Reads a rate and a burst in bits. What runtimes write where nobody said a burst, the largest
    /// number of 31 or 32 bits, says none: Kubernetes has no annotation for it.
    fn new(name: &str, direction: &'static str, rate: u64, burst: u64) -> Result<Self, Failure> {
        const NOT_SAID: [u64; 3] = [0, i32::MAX as u64, u32::MAX as u64];
        if rate < 8 {
            let text = format!("{name}Rate is {rate}: give at least 8 bits per second");
            return Err(Failure::new(code::CONFIG, text));
        }
        let burst = (!NOT_SAID.contains(&burst)).then_some(burst / 8);
        Ok(Self { direction, rate: rate / 8, burst })
    }

    /// The rate, as the daemon reads it.
    pub(crate) fn rate(&self) -> String {
        format!("{}bit/s", self.rate.saturating_mul(8))
    }

    /// Bytes at once. What is not said is what TCP needs: a quarter of a second where packets are
    /// dropped, and little where they wait.
    pub(crate) fn burst(&self, waits: bool) -> u64 {
        let (parts, least) = if waits { (100, 16_000) } else { (4, 64_000) };
        self.burst.unwrap_or_else(|| (self.rate / parts).max(least))
    }

    /// The most packets of one flow that wait, of 60 bytes each.
    pub(crate) fn waiting(&self, delay_ms: u64) -> u64 {
        self.rate.saturating_mul(delay_ms).div_ceil(60_000)
    }
}

/// The version of an input that may be no configuration.
pub(crate) fn version_of(input: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(rename = "cniVersion")]
        version: String,
    }
    serde_json::from_slice(input).map_or_else(|_| NEWEST.to_owned(), |of: Versioned| of.version)
}
