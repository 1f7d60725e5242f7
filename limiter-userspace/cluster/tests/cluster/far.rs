//! A server that is far away: each answer takes long, and a call still has its time.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::{sleep, spawn};
use std::time::Duration;

use limiter_cluster::redis::{Address, RedisSettings, RedisStore, Servers};
use limiter_cluster::store::Store as _;

use crate::live::{ask, batch};
use crate::server::{Server, runtime};

/// Time of a way, there or back.
const WAY: Duration = Duration::from_millis(50);

/// Passes on what comes, later. It ends with its ends.
fn pass_on(mut from: impl Read, mut to: impl Write) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        sleep(WAY);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
}

#[test]
fn a_server_that_is_far_away_is_reached_within_a_call() {
    let Some(server) = Server::start(&[]) else { return };
    let near = server.directory().join("near");
    let listener = UnixListener::bind(&near).expect("bound");
    let far = server.socket();
    let _ends_with_the_test = spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.expect("a connection"), UnixStream::connect(&far));
            let far = far.expect("it listens");
            let again = |stream: &UnixStream| stream.try_clone().expect("another one");
            let (there, back) = ((again(&near), again(&far)), (far, near));
            spawn(move || pass_on(there.0, there.1));
            spawn(move || pass_on(back.0, back.1));
        }
    });
    let servers = Servers::One(Address::Unix(near));
    let store = RedisStore::new(RedisSettings { servers, ..server.settings() });
    let store = store.expect("a good prefix");
    let runtime = runtime();
    // One answer to all scripts, and one to the call: 200 of 350 ms.
    runtime.block_on(store.exchange(&batch(vec![ask("a", 1)]))).expect("an answer in time");
}
