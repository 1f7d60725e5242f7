//! Every kind of frame over a real cable: the shipped program, attached by the daemon, in native
//! and in generic mode. What the network stack and the driver do to a frame before the program sees
//! it shows only here.

mod headers;
mod inside;
mod large;
mod ports;
mod rows;
mod scene;
mod tags;
