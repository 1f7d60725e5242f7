//! The servers over TCP, which are off unless an option starts them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;

use super::Service;
#[cfg(feature = "page")]
use crate::control::Loopback;
use crate::control::TcpServer;
use crate::control::server::Bounds;
use crate::error::StartError;
use crate::routes;

/// Most scrapes at once.
const SCRAPES: usize = 4;

/// Most connections of browsers at once: a few pages, and the connections that each browser opens
/// in advance.
#[cfg(feature = "page")]
const BROWSERS: usize = 16;

/// The servers that the options ask for.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    scrapes: Option<TcpServer>,
    #[cfg(feature = "page")]
    page: Option<(TcpServer, u16)>,
}

impl Listeners {
    /// Listens for scrapes if the options say so, inside a tokio runtime.
    pub(crate) fn open(metrics_listen: Option<SocketAddr>) -> Result<Self, StartError> {
        let mut listeners = Self::default();
        if let Some(address) = metrics_listen {
            let (server, at) = listen("--metrics-listen", address, SCRAPES)?;
            tracing::info!("metrics are served at http://{at}/metrics");
            listeners.scrapes = Some(server);
        }
        Ok(listeners)
    }

    /// Listens for browsers as well, if the options say so.
    #[cfg(feature = "page")]
    pub(crate) fn with_page(mut self, page_listen: Option<Loopback>) -> Result<Self, StartError> {
        if let Some(loopback) = page_listen {
            let (server, at) = listen("--page-listen", loopback.address(), BROWSERS)?;
            tracing::info!("the page is served at http://{at}/, to every user of this machine");
            self.page = Some((server, at.port()));
        }
        Ok(self)
    }

    /// Serves all of them. Never returns.
    pub(crate) async fn serve(self, service: &Arc<Mutex<Service>>) {
        let scrapes = self.scrapes.map(|server| (server, routes::scrapes(Arc::clone(service))));
        #[cfg(feature = "page")]
        let page =
            self.page.map(|(server, port)| (server, routes::page(Arc::clone(service), port)));
        #[cfg(not(feature = "page"))]
        let page = None;
        tokio::join!(serve(scrapes), serve(page));
    }
}

fn listen(
    option: &'static str,
    address: SocketAddr,
    most: usize,
) -> Result<(TcpServer, SocketAddr), StartError> {
    let listening = || {
        let server = TcpServer::bind(address, most)?;
        let at = server.address()?;
        Ok((server, at))
    };
    listening().map_err(|source| StartError::Listen { option, address, source })
}

/// Serves one server, if there is one. Never returns.
async fn serve(asked: Option<(TcpServer, Router)>) {
    match asked {
        Some((server, router)) => server.serve(router, Bounds::default()).await,
        None => std::future::pending().await,
    }
}
