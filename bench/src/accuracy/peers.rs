//! The rules of the others, as their manuals have them, installed in the receiving namespace.

use anyhow::{Context as _, Result};
use limiter_common::wire::Count;
use limiter_tests::command;
use limiter_tests::netns::Netns;

use super::contender::{Contender, Tool};
use super::sink::PORT;

const TABLE: &str = "accuracy";

/// Installs the rule afresh, with nothing owed; returns it as the tool lists it.
///
/// # Errors
///
/// When the tool refuses the rule.
pub fn install(contender: &Contender, netns: &Netns) -> Result<String> {
    match contender.tool {
        Tool::Hashlimit => iptables(netns, &hashlimit(contender), "hashlimit"),
        Tool::Limit => iptables(netns, &limit(contender), "limit"),
        Tool::Nft => nft(netns, contender),
        Tool::Limiter => Ok(String::new()),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn hashlimit(contender: &Contender) -> Vec<String> {
    let suffix = match contender.count {
        Count::Packets | Count::Syns | Count::Flows => "",
        Count::Bytes => "b",
    };
    let Contender { per_second, burst, default_burst, .. } = contender;
    let burst =
        if *default_burst { String::new() } else { format!("--hashlimit-burst {burst}{suffix}") };
    words(&format!(
        "-m hashlimit --hashlimit-upto {per_second}{suffix}/s {burst} --hashlimit-mode srcip \
         --hashlimit-name accuracy"
    ))
}

fn limit(contender: &Contender) -> Vec<String> {
    let Contender { per_second, burst, .. } = contender;
    words(&format!("-m limit --limit {per_second}/s --limit-burst {burst}"))
}

/// Accepts what the match lets through and drops the rest.
fn iptables(netns: &Netns, rule_match: &[String], name: &str) -> Result<String> {
    let port = PORT.to_string();
    let ours = ["-A", "INPUT", "-p", "udp", "--dport", &port];
    netns.run("iptables", ["-F", "INPUT"])?;
    let accept = rule_match.iter().map(String::as_str).chain(["-j", "ACCEPT"]);
    netns.run("iptables", ours.into_iter().chain(accept).collect::<Vec<_>>())?;
    netns.run("iptables", ours.into_iter().chain(["-j", "DROP"]).collect::<Vec<_>>())?;
    let listed = netns.run("iptables", ["-S", "INPUT"])?;
    let start = format!("-m {name} ");
    let rule = listed.lines().find_map(|line| Some(&line[line.find(&start)?..]));
    rule.map(str::to_owned).with_context(|| format!("iptables does not list its rule: {listed}"))
}

fn nft(netns: &Netns, contender: &Contender) -> Result<String> {
    let Contender { per_second, burst, default_burst, .. } = contender;
    let (rate, unit) = match contender.count {
        Count::Packets | Count::Syns | Count::Flows => (format!("{per_second}/second"), "packets"),
        Count::Bytes => (format!("{per_second} bytes/second"), "bytes"),
    };
    let burst = if *default_burst { String::new() } else { format!(" burst {burst} {unit}") };
    let script = format!(
        "table ip {TABLE}\n\
         delete table ip {TABLE}\n\
         table ip {TABLE} {{\n\
           set sources {{ type ipv4_addr; size 65535; flags dynamic; timeout 1m; }}\n\
           chain input {{\n\
             type filter hook input priority 0;\n\
             udp dport {PORT} update @sources {{ ip saddr limit rate over {rate}{burst} }} drop\n\
           }}\n\
         }}\n"
    );
    netns.enter(|| command::feed("nft", &["-f", "-"], &script))??;
    let listed = netns.run("nft", ["list", "chain", "ip", TABLE, "input"])?;
    let rule = listed.lines().find(|line| line.contains("@sources"));
    rule.map(|line| line.trim().to_owned())
        .with_context(|| format!("nft does not list its rule: {listed}"))
}
