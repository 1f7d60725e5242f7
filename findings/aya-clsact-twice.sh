#!/usr/bin/env bash
# aya never says that an interface has a clsact qdisc already.
#
# aya 0.14.0, iproute2 6.1, Linux 6.18. aya's error type for tc has `TcError::AlreadyAttached`, "the
# clsact qdisc is already attached". `tc::qdisc_add_clsact`, called for an interface that has one,
# returns `TcError::NetlinkError` with the kernel's EEXIST (17) instead; nothing in the crate makes
# the other error. A program that takes `AlreadyAttached` for success works once on each interface,
# and fails at its next start, and where anybody else has made a clsact before. `raw_os_error` of
# the error inside says which one it is.
#
# Needs root, cargo, gcc and iproute2. Exits with 0 if aya still behaves so, with 1 if not.
set -euo pipefail

if [[ ${1-} != --inside ]]; then
    dir=$(mktemp -d)
    trap 'rm -rf -- "$dir"' EXIT
    mkdir "$dir/src"
    cat >"$dir/Cargo.toml" <<'TOML'
[package]
name = "clsact-twice"
version = "0.0.0"
edition = "2021"

[dependencies]
aya = "=0.14.0"
TOML
    cat >"$dir/src/main.rs" <<'RUST'
use aya::programs::tc::{TcError, qdisc_add_clsact};

fn main() {
    for time in ["first", "second"] {
        let said = match qdisc_add_clsact("e0") {
            Ok(()) => "made".to_owned(),
            Err(TcError::AlreadyAttached) => "AlreadyAttached".to_owned(),
            Err(TcError::NetlinkError(error)) => format!("netlink {:?}", error.raw_os_error()),
            Err(other) => format!("{other:?}"),
        };
        println!("{time}: {said}");
    }
}
RUST
    cargo build --quiet --manifest-path "$dir/Cargo.toml"
    unshare --net "$0" --inside "$dir/target/debug/clsact-twice"
    exit
fi

uname -r
ip -Version
ip link add e0 type veth peer name e1
said=$("$2")
echo "$said"
[[ $said == $'first: made\nsecond: netlink Some(17)' ]]
