//! A store over TLS: the server's certificate is checked against the authority that is configured,
//! and so is that of each server of a cluster.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use limiter_cluster::redis::{Address, RedisSettings, RedisStore, Servers};
use limiter_cluster::store::{Batch, Store as _, StoreError};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::server::{Server, runtime};
use crate::shards::{Shards, free_port};

/// Time of a call, which has a CPU for a part of it.
const PATIENCE: Duration = Duration::from_secs(20);

fn openssl(directory: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(arguments.split_whitespace()).current_dir(directory).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Two authorities, `ca.pem` and `other.pem`, and `server.pem` of the first for a name.
fn certificates(name: &str) -> TempDir {
    let directory = TempDir::new().expect("a temporary directory");
    let at = directory.path();
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for (name, subject) in [("ca", "/CN=authority"), ("other", "/CN=other")] {
        openssl(
            at,
            &format!("req -x509 {curve} -keyout {name}.key -out {name}.pem -subj {subject}"),
        );
    }
    std::fs::write(at.join("names"), format!("subjectAltName={name}\n")).expect("written");
    openssl(at, &format!("req {curve} -keyout server.key -out server.csr -subj /CN=server"));
    openssl(
        at,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile names -out server.pem",
    );
    directory
}

/// Options of a server with these certificates.
fn options(certificates: &TempDir) -> Vec<String> {
    let file = |name: &str| certificates.path().join(name).display().to_string();
    let files = [("cert", "server.pem"), ("key", "server.key"), ("ca-cert", "ca.pem")];
    let files = files.map(|(option, name)| [format!("--tls-{option}-file"), file(name)]);
    let clients = ["--tls-auth-clients".to_owned(), "no".to_owned()];
    files.into_iter().flatten().chain(clients).collect()
}

fn call(runtime: &Runtime, settings: RedisSettings, shard: u16) -> Result<(), StoreError> {
    let settings = RedisSettings { timeout: PATIENCE, ..settings };
    let store = RedisStore::new(settings).expect("a good prefix");
    let batch = Batch { shard, deadline: None, hot_since: None, asks: Vec::new() };
    runtime.block_on(store.exchange(&batch)).map(|_| ())
}

#[test]
fn a_certificate_of_the_authority_is_trusted_and_no_other() {
    let files = certificates("DNS:localhost");
    let port = free_port();
    let tls = options(&files);
    let tls = tls.iter().map(String::as_str);
    let at = ["--tls-port", &port.to_string(), "--bind", "127.0.0.1"];
    let Some(server) = Server::start(&at.into_iter().chain(tls).collect::<Vec<_>>()) else {
        return;
    };
    let runtime = runtime();
    let call = |authority: &str, host: &str| {
        let authority = Some(files.path().join(authority));
        let servers = Servers::One(Address::Tls { host: host.to_owned(), port, authority });
        call(&runtime, RedisSettings { servers, ..server.settings() }, 0)
    };
    call("ca.pem", "localhost").expect("an answer");
    assert!(matches!(call("other.pem", "localhost"), Err(StoreError::Lost(_))));
    assert!(matches!(call("ca.pem", "127.0.0.1"), Err(StoreError::Lost(_))), "another name");
    assert!(call("nowhere.pem", "localhost").is_err());
}

/// Servers that a server names, or sends a call on to, are reached by TLS, too.
#[test]
fn a_cluster_is_reached_by_tls_alone() {
    let files = certificates("IP:127.0.0.1");
    let tls = options(&files);
    let mut words: Vec<&str> = tls.iter().map(String::as_str).collect();
    words.extend(["--tls-cluster", "yes", "--tls-replication", "yes"]);
    let Some(mut shards) = Shards::start_tls(&[&["0000"], &["0001"]], &words) else { return };
    let settings = |authority: &str| {
        let authority = Some(files.path().join(authority));
        let port = shards.servers[0].port;
        let seed = Address::Tls { host: "127.0.0.1".to_owned(), port, authority };
        let servers = Servers::Cluster(vec![seed]);
        RedisSettings { servers, timeout: PATIENCE, ..shards.settings(&[0]) }
    };
    for shard in [0, 1] {
        call(&shards.runtime, settings("ca.pem"), shard).expect("an answer");
    }
    let error = call(&shards.runtime, settings("other.pem"), 0).expect_err("not trusted");
    assert!(matches!(error, StoreError::Lost(_)), "{error}");
    let store = RedisStore::new(settings("ca.pem")).expect("a good prefix");
    let batch = Batch { shard: 0, deadline: None, hot_since: None, asks: Vec::new() };
    shards.runtime.block_on(store.exchange(&batch)).expect("an answer");
    let slot = shards.slot("0000");
    shards.reshard(slot, 0, 1);
    shards.runtime.block_on(store.exchange(&batch)).expect("an answer of the other server");
    assert_eq!(shards.errors(0, "MOVED"), 1);
}
