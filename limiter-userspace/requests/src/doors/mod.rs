//! The doors: connections, and the wire formats of HTTP, gRPC, quotas and Redis. Everything here
//! turns a wire format into a question, and a decision into an answer in that format.

pub(crate) mod check;
pub(crate) mod connections;
pub(crate) mod described;
pub(crate) mod envoy;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod json;
pub(crate) mod lateness;
pub(crate) mod listen;
pub(crate) mod open_files;
pub(crate) mod quota;
pub(crate) mod refused;
pub(crate) mod resp;
pub(crate) mod under_way;
pub(crate) mod utf8;
