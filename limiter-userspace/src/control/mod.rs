//! The control interface: HTTP with JSON on a unix socket.
//!
//! [`api`] has the documents that both sides share, [`server`] and [`client`] the two sides.
//! Whoever may connect may read; changing takes root or the daemon's own user.

mod answer;
pub mod api;
pub mod client;
mod crowd;
pub mod exposition;
mod follow;
mod line;
pub mod parts;
mod peer;
mod routes;
mod scrape;
pub mod server;
mod slices;
mod socket;
mod turns;

pub use client::{Client, ClientError};
pub use scrape::ScrapeListener;
pub use server::{Handler, Server};
pub use socket::BindError;
pub(crate) use turns::gives_way;

/// What a client of this user meets, without a socket.
#[cfg(test)]
pub(crate) fn router(handler: server::Shared, user: u32) -> axum::Router {
    let peer = peer::Peer::new(user, 0, None, &turns::Turns::new(turns::MOST));
    routes::router(handler).layer(axum::Extension(peer))
}

#[cfg(test)]
mod tests;
