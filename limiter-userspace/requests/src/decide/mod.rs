//! What is asked, what becomes of it, and the answer.

pub(crate) mod afterwards;
pub(crate) mod answer;
pub(crate) mod question;
pub(crate) mod reservations;
pub(crate) mod reserve;
pub(crate) mod target;
