//! Servers of Redis' protocol, asked by the same applications: `limiter serve`,
//! throttlecrab-server, and Redis with a script.

mod asked;
mod measured;
mod served;

pub(super) use measured::measure;
