//! A node never limits its store: the store's answers come in by the limited interface, and a node
//! that drops them cuts itself off from all others.

use std::net::{IpAddr, ToSocketAddrs as _};

use limiter_cluster::config::Config;
use limiter_cluster::redis::{Address, Servers};
use limiter_cluster::status::ServerStatus;
use limiter_rules::Selector;

use crate::rule_sets::layers::Layers;

/// Reason of management prefixes that belong to the store.
pub(crate) const STORE: &str = "the store of the cluster";

/// The addresses of the store's servers, which must never be limited. Names that cannot be resolved
/// are logged and shown by `limiter cluster`.
pub(crate) fn sources(config: &Config) -> Vec<Selector> {
    let servers = match &config.redis.servers {
        Servers::One(server) => std::slice::from_ref(server),
        Servers::Cluster(servers) => servers,
    };
    servers.iter().flat_map(found).filter(|at| !at.is_loopback()).map(Selector::address).collect()
}

fn found(server: &Address) -> Vec<IpAddr> {
    let (host, port) = match server {
        Address::Unix(_) => return Vec::new(),
        Address::Tcp { host, port } | Address::Tls { host, port, .. } => (host.as_str(), *port),
    };
    match (host, port).to_socket_addrs() {
        Ok(found) => found.map(|at| at.ip()).collect(),
        Err(error) => {
            tracing::warn!(
                "the store {host} is not found: {error}: its answers may be limited: give its \
                 address with --management"
            );
            Vec::new()
        }
    }
}

/// Warnings about servers of the store whose answers this node may drop.
pub(crate) fn warnings(layers: &Layers, servers: &[ServerStatus]) -> Vec<String> {
    let found_any = layers.management.values().any(|reason| *reason == STORE);
    let limited = servers.iter().filter(|server| {
        if server.address.starts_with('/') {
            return false;
        }
        let host = server.address.rsplit_once(':').map_or(&*server.address, |(host, _)| host);
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => {
                !address.is_loopback() && layers.managed(&Selector::address(address)).is_none()
            }
            Err(_) => host != "localhost" && !found_any,
        }
    });
    let reported = limited.map(|server| {
        format!(
            "the answers of {}, a server of the store, may be limited by this node: start the \
             daemon with --management and its address",
            server.address
        )
    });
    reported.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(address: &str) -> Vec<String> {
        let text = format!("redis: {{address: '{address}'}}\nnodes: 2\nnode: a\n");
        let config = Config::parse(Path::new("c.yaml"), &text).unwrap();
        sources(&config).iter().map(ToString::to_string).collect()
    }

    fn server(address: &str) -> ServerStatus {
        let address = address.into();
        ServerStatus { address, connected: true, slots: None, error: None, keeping: None }
    }

    #[test]
    fn the_store_is_found_by_its_address() {
        assert_eq!(of("192.0.2.50:6379"), ["192.0.2.50"]);
        assert_eq!(of("[2001:db8::7]:6379"), ["2001:db8::/64"]);
        assert!(of("/run/redis.sock").is_empty());
        assert!(of("127.0.0.1:6379").is_empty());
        let text = "redis: {cluster: ['192.0.2.1:7000', '192.0.2.2:7000']}\nnodes: 2\nnode: a\n";
        let config = Config::parse(Path::new("c.yaml"), text).unwrap();
        assert_eq!(sources(&config).len(), 2);
    }

    #[test]
    fn a_server_that_may_be_limited_is_reported() {
        let mut layers = Layers::default();
        let reported = |layers: &Layers, address: &str| warnings(layers, &[server(address)]).len();
        assert_eq!(reported(&layers, "192.0.2.50:6379"), 1);
        assert_eq!(reported(&layers, "store.example.org:6379"), 1);
        for own in ["/run/redis.sock", "127.0.0.1:6379", "[::1]:6379", "localhost:6379"] {
            assert_eq!(reported(&layers, own), 0, "{own}");
        }
        layers.management.insert(Selector::address([192, 0, 2, 50].into()), STORE);
        assert_eq!(reported(&layers, "192.0.2.50:6379"), 0);
        assert_eq!(reported(&layers, "192.0.2.51:6379"), 1);
        // Nobody logs in from the store.
        assert!(layers.nobody_is_safe().is_some());
    }
}
