//! The control interface: HTTP with JSON on a unix socket.
//!
//! [`api`] has the documents that both sides share, [`server`] and [`client`] the two sides.
//! Whoever may connect may read; changing takes root or the daemon's own user.

pub mod api;
pub mod client;
mod crowd;
pub mod exposition;
mod follow;
mod routes;
mod scrape;
pub mod server;
mod slices;
mod socket;

pub use client::{Client, ClientError};
pub use scrape::ScrapeListener;
pub use server::{Handler, Server};
pub use socket::BindError;

/// What a client of this user meets, without a socket.
#[cfg(test)]
pub(crate) fn router(handler: server::Shared, user: u32) -> axum::Router {
    routes::router(handler, routes::Peer { user, owner: 0 }, follow::Following::default())
}

#[cfg(test)]
mod tests;
