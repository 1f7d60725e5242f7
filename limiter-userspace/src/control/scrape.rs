//! `GET /metrics` on a TCP address: for a Prometheus on another machine. Nothing else is served
//! there, and nobody listens unless told to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::crowd::Crowd;
use super::follow::Following;
use super::line::is_waited_at;
use super::peer::Peer;
use super::server::{Bounds, converse};
use super::turns::Turns;

/// Scrapes at once; one more ends the oldest of the address that has the most.
const CONNECTIONS: usize = 4;

/// Listens for scrapes.
#[derive(Debug)]
pub struct ScrapeListener(TcpListener);

impl ScrapeListener {
    /// Listens, inside a tokio runtime.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self(TcpListener::from_std(listener)?))
    }

    /// Address that it listens on: the port, if any was asked for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Serves what `router` routes, for ever; a dropped future cuts off what is under way.
    pub async fn serve(self, router: Router, bounds: Bounds) {
        // Turns for all connections: none waits for another, and none are taken from the socket's.
        let turns = Turns::new(CONNECTIONS);
        let mut crowd = Crowd::new(CONNECTIONS);
        let mut running = JoinSet::new();
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                Some(_) = running.join_next() => continue,
                accepted = self.0.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    failing = false;
                    crowd.make_room();
                    let (router, turns) = (router.clone(), Arc::clone(&turns));
                    let task = running.spawn(async move {
                        converse(stream, router, Peer::remote(&turns), bounds).await;
                    });
                    // No answer there is without an end.
                    crowd.add(peer.ip(), Following::default(), task);
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "a scrape's connection failed");
                    }
                    failing = true;
                    // Trying again at once would spin, as in the control server.
                    if is_waited_at(&self.0) {
                        crowd.give_way();
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}
