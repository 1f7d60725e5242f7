//! The control interface: HTTP with JSON on a unix socket.
//!
//! [`Server`] is the side of the daemon (`limiter-api` has the client), [`Routes`] maps paths to
//! handlers, and the methods of [`Call`] are the ways to answer. The content of requests and
//! answers belongs to the service; nothing here knows it. Anybody who may connect may read; changes
//! are allowed to root and to the daemon's own user, but to no browser. [`TcpServer`] serves routes
//! that only read.

mod answer;
mod browser;
mod connection_limit;
mod follow;
mod line;
mod loopback;
mod over_tcp;
pub mod parts;
mod peer;
mod refusal;
mod request;
mod room;
mod routes;
pub mod server;
mod socket;
mod turns;

pub use answer::{Answer, Call, JSON, Sliced, Step};
pub use browser::harden;
pub use follow::Lines;
pub use loopback::{Loopback, NoLoopback};
pub use over_tcp::TcpServer;
pub use peer::Peer;
pub use refusal::{Failure, Refusal};
pub use request::{Asked, JsonBody, MAX_RULES_BODY, Named};
pub use routes::{Routes, Shared};
pub use server::Server;
pub use socket::BindError;
pub(crate) use turns::gives_way;

/// The router as a client of this user sees it, without a socket.
#[cfg(test)]
pub(crate) fn met_by(router: axum::Router, user: u32) -> axum::Router {
    let peer = Peer::new(user, 0, None, &turns::Turns::new(turns::MOST));
    router.layer(axum::Extension(peer))
}

#[cfg(test)]
mod tests;
