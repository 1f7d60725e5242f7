#![allow(missing_docs, unreachable_pub, clippy::all)]
extern crate limiter_sandbox as limiter_tests;
#[path = "../../tests/rule_sets/mod.rs"]
mod rule_sets;
