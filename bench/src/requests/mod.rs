//! `cargo xtask bench requests`: decisions about requests, in process and by servers over gRPC,
//! beside the crates limitador and governor, and beside a call of Redis for each request; and over
//! Redis' protocol, beside throttlecrab-server and a script of Redis.

mod asked;
mod contender;
mod page;
mod resp;
pub mod run;
pub mod served;
mod servers;
