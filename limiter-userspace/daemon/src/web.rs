//! A client of servers that the operator names, over TCP or TLS. It follows no redirects.
//!
//! The certificate of an `https` server must be valid for its name and issued by an authority that
//! this machine trusts.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

/// Form of a URL, for error messages.
pub(crate) const FORM: &str = "write https://HOST/PATH or http://HOST/PATH";

/// URL of a server: `http` or `https`, without a name and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebUrl(Uri);

impl FromStr for WebUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}: {FORM}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(FORM.to_owned());
        }
        let authority = uri.authority().ok_or(FORM)?;
        if authority.as_str().contains('@') {
            return Err("a name and password are not supported: leave them out".to_owned());
        }
        Ok(Self(uri))
    }
}

impl WebUrl {
    /// The URL as it was written.
    pub const fn uri(&self) -> &Uri {
        &self.0
    }
}

/// A client for one URL. Each call has a connection of its own.
#[derive(Debug)]
pub struct WebClient(
    /// An error if the TLS library cannot encrypt.
    Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, rustls::Error>,
);

impl WebClient {
    /// Makes a client that trusts this machine's authorities, which are read now if the URL needs
    /// them. `option` is where the URL was given, for messages.
    pub fn new(url: &WebUrl, option: &str) -> Self {
        let https = url.0.scheme_str() == Some("https");
        Self::trusting(if https { authorities(option) } else { RootCertStore::empty() })
    }

    pub(crate) fn trusting(roots: RootCertStore) -> Self {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions();
        Self(tls.map(|tls| {
            let tls = tls.with_root_certificates(roots).with_no_client_auth();
            let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
            Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(connector.enable_http1().build())
        }))
    }

    /// Sends a request; the answer without its body.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let client = self.0.as_ref().map_err(ToString::to_string)?;
        // The outer error alone says neither that nobody listens nor what is wrong with a
        // certificate.
        client.request(request).await.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }

    /// Gets a document of at most `most` bytes, all of it within `patience`; blocks.
    pub fn get(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        most: usize,
        patience: Duration,
    ) -> Result<(u16, Bytes), String> {
        let mut request = Request::get(url).header("connection", "close");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let exchange = async {
            let response = self.send(request).await?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), most).collect().await;
            let body = body.map_err(|error| format!("the answer cannot be read: {error}"))?;
            Ok((status, body.to_bytes()))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime can be made: {error}"))?;
        let done = runtime.block_on(async { timeout(patience, exchange).await });
        // A name that is still being resolved must not hold this up.
        runtime.shutdown_background();
        done.unwrap_or_else(|_elapsed| Err(format!("no whole answer within {patience:?}")))
    }
}

/// Authorities that this machine trusts: from the file in `SSL_CERT_FILE` and the directories in
/// `SSL_CERT_DIR`, or, without both, from the usual places of distributions.
fn authorities(option: &str) -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!("certificates for {option} cannot be read: {error}");
    }
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        tracing::warn!(
            "{option} cannot work: this machine has no certificate authorities: install \
             ca-certificates, or name a file with some in SSL_CERT_FILE"
        );
    }
    roots
}
