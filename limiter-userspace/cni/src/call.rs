//! A call of a container runtime, by the variables of its environment.

use std::fs::File;
use std::path::PathBuf;

use limiter_datapath::{Interface, host_end};

use crate::failure::{Failure, code};

/// Most characters of the id of a container: Kubernetes and podman use 64.
pub(crate) const LONGEST_ID: usize = 200;

/// What a runtime asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Add(Attachment, PathBuf),
    Check(Attachment, PathBuf),
    Del(Attachment),
    Gc,
    Status,
    Version,
}

/// A container, and the interface in it: what belongs to a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attachment {
    pub(crate) container: String,
    pub(crate) interface: String,
}

impl Call {
    /// Reads the call. `variable` gives a variable of the environment.
    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let needed = |name: &str| {
            variable(name).filter(|value| !value.is_empty()).ok_or_else(|| {
                let text = format!("{name} is not set: container runtimes set it");
                Failure::new(code::ENVIRONMENT, text)
            })
        };
        let attachment = || Attachment::new(needed("CNI_CONTAINERID")?, needed("CNI_IFNAME")?);
        Ok(match needed("CNI_COMMAND")?.as_str() {
            "ADD" => Self::Add(attachment()?, needed("CNI_NETNS")?.into()),
            "CHECK" => Self::Check(attachment()?, needed("CNI_NETNS")?.into()),
            "DEL" => Self::Del(attachment()?),
            "GC" => Self::Gc,
            "STATUS" => Self::Status,
            "VERSION" => Self::Version,
            other => {
                let text = format!(
                    "CNI_COMMAND is {other:?}: give ADD, CHECK, DEL, GC, STATUS or VERSION"
                );
                return Err(Failure::new(code::ENVIRONMENT, text));
            }
        })
    }
}

impl Attachment {
    /// Checks both names.
    pub(crate) fn new(container: String, interface: String) -> Result<Self, Failure> {
        if !is_name(&container) {
            let text = format!(
                "CNI_CONTAINERID is {container:?}: give letters, digits, '_', '.' and '-', at most \
                 {LONGEST_ID}"
            );
            return Err(Failure::new(code::ENVIRONMENT, text));
        }
        let bad = |c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control();
        if interface.len() > 15 || interface.contains(bad) {
            let text = format!("CNI_IFNAME is {interface:?}, which is no name of an interface");
            return Err(Failure::new(code::ENVIRONMENT, text));
        }
        Ok(Self { container, interface })
    }

    /// The host's end of the container's cable.
    pub(crate) fn cable(&self, namespace: &PathBuf) -> Result<Interface, Failure> {
        let place = namespace.display();
        let file = File::open(namespace).map_err(|error| {
            Failure::new(code::NO_CONTAINER, format!("CNI_NETNS={place}: {error}"))
        })?;
        let found = host_end(&file, &self.interface);
        let found = found.map_err(|error| Failure::new(code::REFUSED, error.to_string()))?;
        found.ok_or_else(|| {
            let text = format!(
                "{} in {place} is no end of a cable (veth) to the host, and only such a cable can \
                 be limited: put limiter-cni behind a plugin like bridge or ptp",
                self.interface
            );
            Failure::new(code::NOT_LIMITED, text)
        })
    }
}

/// True of names of containers and networks.
pub(crate) fn is_name(text: &str) -> bool {
    let others = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.len() <= LONGEST_ID
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(others)
}
