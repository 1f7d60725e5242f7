//! The control interface: HTTP with JSON on a unix socket.
//!
//! [`api`] has the documents that both sides share, [`server`] and [`client`] the two sides.
//! Whoever may connect may read; changing takes root or the daemon's own user.

pub mod api;
pub mod client;
mod follow;
mod routes;
pub mod server;
mod socket;

pub use client::{Client, ClientError};
pub use server::{Handler, Server};
pub use socket::BindError;

#[cfg(test)]
mod tests;
