//! The question, what becomes of it, and the answer.

pub(crate) mod afterwards;
pub(crate) mod answer;
pub(crate) mod charge;
pub(crate) mod find;
pub(crate) mod question;
pub(crate) mod request;
pub(crate) mod reservations;
pub(crate) mod reserve;
pub(crate) mod target;
pub(crate) mod unit;
