//! Answers that take long: they are worked out in slices, between other requests.

use std::any::Any;
use std::time::Duration;

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
#[derive(Clone, Debug, PartialEq)]
pub enum Step<T> {
    /// The next one.
    Again,
    /// The next one after this time.
    After(Duration),
    /// Nothing: this is the answer.
    Done(T),
}
