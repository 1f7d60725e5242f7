//! Servers over TCP for routes that only read, open to anybody who reaches their address. Nothing
//! listens unless an option asks for it.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::connection_limit::ConnectionLimit;
use super::line::is_waited_at;
use super::peer::Peer;
use super::server::{Bounds, converse};
use super::turns::Turns;

/// A listening server over TCP.
#[derive(Debug)]
pub struct TcpServer {
    listener: TcpListener,
    /// Most connections at once; one more ends the oldest of the address with the most.
    most: usize,
}

impl TcpServer {
    /// Listens, inside a tokio runtime, for at most `most` connections at once.
    pub fn bind(address: SocketAddr, most: usize) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: TcpListener::from_std(listener)?, most })
    }

    /// Address that the server listens on, with the actual port if 0 was requested.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves the routes of `router` for ever; dropping the future cuts off running answers.
    pub async fn serve(self, router: Router, bounds: Bounds) {
        // One turn for each connection, so none waits for another or takes a turn of the socket.
        let turns = Turns::new(self.most);
        let mut connection_limit = ConnectionLimit::new(self.most);
        let mut running = JoinSet::new();
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                Some(_) = running.join_next() => continue,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    failing = false;
                    connection_limit.make_room();
                    let (router, peer) = (router.clone(), Peer::remote(&turns));
                    let following = peer.following.clone();
                    let task = running.spawn(async move {
                        converse(stream, router, peer, bounds).await;
                    });
                    connection_limit.add(from.ip(), following, task);
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "a connection over TCP failed");
                    }
                    failing = true;
                    // The same reaction as in the control server.
                    if is_waited_at(&self.listener) && connection_limit.evict().is_some() {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(bounds.pause).await;
                    }
                }
            }
        }
    }
}
