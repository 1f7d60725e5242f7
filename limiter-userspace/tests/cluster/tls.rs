//! A store over TLS: the server's certificate is checked against the authority that is configured.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use limiter_userspace::cluster::redis::{Address, RedisStore, Servers};
use limiter_userspace::cluster::store::{Batch, Store as _, StoreError};

use crate::server::{Server, runtime};

fn openssl(directory: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(arguments.split_whitespace()).current_dir(directory).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_certificate_of_the_authority_is_trusted_and_no_other() {
    let certificates = tempfile::TempDir::new().expect("a temporary directory");
    let at = certificates.path();
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for (name, subject) in [("ca", "/CN=authority"), ("other", "/CN=other")] {
        openssl(
            at,
            &format!("req -x509 {curve} -keyout {name}.key -out {name}.pem -subj {subject}"),
        );
    }
    std::fs::write(at.join("names"), "subjectAltName=DNS:localhost\n").expect("written");
    openssl(at, &format!("req {curve} -keyout server.key -out server.csr -subj /CN=localhost"));
    openssl(
        at,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile names -out server.pem",
    );
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let file = |name: &str| at.join(name).display().to_string();
    let Some(server) = Server::start(&[
        "--tls-port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "no",
    ]) else {
        return;
    };
    let runtime = runtime();
    let call = |authority: &str, host: &str| {
        let mut settings = server.settings();
        let authority = Some(at.join(authority));
        settings.servers = Servers::One(Address::Tls { host: host.to_owned(), port, authority });
        settings.timeout = Duration::from_secs(5);
        let store = RedisStore::new(settings).expect("a good prefix");
        let batch = Batch { shard: 0, deadline: None, hot_since: None, asks: Vec::new() };
        runtime.block_on(store.exchange(&batch)).map(|_| ())
    };
    call("ca.pem", "localhost").expect("an answer");
    assert!(matches!(call("other.pem", "localhost"), Err(StoreError::Lost(_))));
    assert!(matches!(call("ca.pem", "127.0.0.1"), Err(StoreError::Lost(_))), "another name");
    assert!(call("nowhere.pem", "localhost").is_err());
}
