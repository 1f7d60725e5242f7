//! Answers that take long, or are large: they are worked out in slices, between other requests, and what is ready of
//! their text is sent before the rest is made.

use std::any::Any;
use std::time::Duration;

use hyper::body::Bytes;

use super::api::rules::ExportRules;
use super::api::sources::AskSources;

/// Answers that are worked out in slices, because they grow with the rules, the lists or the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `GET /v1/limits`.
    Limits,
    /// `GET /v1/stats`.
    Stats,
    /// `GET /v1/lists`.
    Lists,
    /// `GET /v1/bans`.
    Bans,
    /// `GET /v1/sources`.
    Sources(AskSources),
    /// `GET /v1/rules`.
    Rules(ExportRules),
    /// `GET /metrics`.
    Metrics,
}

/// How far a handler has come with an answer; only the handler knows what is in it.
pub struct Slices(Box<dyn Any + Send>);

impl Slices {
    /// The beginning.
    pub fn new<T: Any + Send>(state: T) -> Self {
        Self(Box::new(state))
    }

    /// What the handler put there.
    pub fn get<T: Any>(&mut self) -> Option<&mut T> {
        self.0.downcast_mut()
    }
}

/// What comes after a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next one.
    Again,
    /// The next one after this time.
    After(Duration),
    /// This is the next part of the text, and then comes the next slice.
    Part(Bytes),
    /// Nothing: all of the text was told.
    Done,
}
