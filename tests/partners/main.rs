//! limiter beside the real things: proxies, clients, stores, container engines and others, each
//! started from its package in namespaces of its own, with the lines of the pages in `docs`. Each
//! is tried alive, dead, hanging and restarting. `cargo xtask partners` runs them; `cargo xtask
//! test` does not.

mod caddy;
mod containers;
mod crowdsec;
mod envoy;
mod envoy_quota;
mod fail2ban;
mod haproxy;
mod machine;
mod nginx;
mod package;
mod page;
mod partner;
mod prometheus;
mod proxy;
mod redis_py;
mod stores;
