//! The algorithms side by side, a picture for some loads of docs/loads: as `limiter simulate
//! --algorithms --plot` draws it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use limiter_replay::explain::Settings;
use limiter_replay::load;
use limiter_replay::simulate::{Simulation, figure, in_every_algorithm};
use limiter_rules::RuleFile;

/// The loads of the comparison.
const LOADS: [&str; 2] = ["stall", "burst"];

const FRAME: u64 = 1522;

/// The pictures with their names, of the loads in a directory.
pub(crate) fn plots(directory: &Path) -> Result<Vec<(String, String)>> {
    let read = |name: &str| {
        let path = directory.join(format!("{name}.yaml"));
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let rules = RuleFile::parse("rules.yaml", read("rules")?.as_bytes(), FRAME)?.rules;
    let sets: Vec<_> =
        in_every_algorithm(&rules).into_iter().map(|(name, set)| (name.to_owned(), set)).collect();
    let settings = Settings { interface: None, max_frame: FRAME };
    let mut plots = Vec::new();
    for name in LOADS {
        let mut simulation = Simulation::new(&sets, &settings)
            .map_err(|(name, error)| anyhow::anyhow!("{name}: {error}"))?;
        for packet in load::parse(name, &read(name)?)?.packets() {
            simulation.packet(&packet)?;
        }
        plots.push((format!("load-{name}"), figure(&simulation.report(), name)));
    }
    Ok(plots)
}
