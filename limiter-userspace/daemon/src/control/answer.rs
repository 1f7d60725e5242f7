//! Answers: changes are made at once; each reader waits for its turn; a client that is gone gets no
//! answer; and a large answer is made no faster than the client takes it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{Extension, FromRequestParts};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use serde::Serialize;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::follow::{LineBody, Lines};
use super::parts::PART;
use super::peer::Peer;
use super::refusal::{Failure, Refusal};
use super::routes::Shared;
use super::turns::Turn;

/// The answer to a request.
pub type Answer = Result<Response, Failure>;

/// Content type of JSON.
pub const JSON: &str = "application/json";

/// JSON with a document in each line.
const JSON_LINES: &str = "application/x-ndjson";

/// An answer that takes long or is large: it is computed in slices, between other requests, and the
/// finished text is sent before the rest is made.
pub trait Sliced<S>: Send + 'static {
    /// The next slice.
    fn step(&mut self, service: &S) -> Result<Step, Refusal>;
}

/// Next step after a slice of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Compute the next slice.
    Again,
    /// Compute the next slice after this time.
    After(Duration),
    /// Send the next part of the text, then compute the next slice.
    Part(Bytes),
    /// Stop: all of the text was sent.
    Done,
}

/// A request that waits for its answer: the service, and the client that asks it.
pub struct Call<S> {
    shared: Shared<S>,
    /// The client.
    pub peer: Peer,
}

impl<S: Send> FromRequestParts<Shared<S>> for Call<S> {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Shared<S>,
    ) -> Result<Self, ExtensionRejection> {
        let Extension(peer) = Extension::from_request_parts(parts, shared).await?;
        Ok(Self { shared: Arc::clone(shared), peer })
    }
}

impl<S: Send + 'static> Call<S> {
    /// The service.
    pub fn service(&self) -> Shared<S> {
        Arc::clone(&self.shared)
    }

    /// Answers a request that changes something, at once. Nothing is done for a client that has
    /// given up: it was told, or has itself reported, that the change may not have happened.
    pub fn change<T: Serialize>(self, call: impl FnOnce(&mut S) -> Result<T, Refusal>) -> Answer {
        if self.peer.is_gone() {
            return Err(gone().into());
        }
        Ok(Json(with(&self.shared, call)?).into_response())
    }

    /// Answers a request that reads: after the changes, and a few at a time.
    pub async fn read<T: Serialize>(
        self,
        call: impl FnOnce(&mut S) -> Result<T, Refusal>,
    ) -> Answer {
        let turn = admit(&self.peer).await?;
        let answer = with(&self.shared, call)?;
        let text = serde_json::to_vec(&answer)
            .map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(([(CONTENT_TYPE, JSON)], whole(text.into(), turn)).into_response())
    }

    /// Answers a request that reads, with a response made by `call`. For small responses only: the
    /// turn may end before the client has taken all of it.
    pub async fn respond(self, call: impl FnOnce(&mut S) -> Result<Response, Refusal>) -> Answer {
        let _turn = admit(&self.peer).await?;
        Ok(with(&self.shared, call)?)
    }

    /// Answers with endless lines. A follower keeps no turn; it needs one only to begin.
    pub async fn follow(self, begin: impl FnOnce(&mut S) -> Result<Lines, Refusal>) -> Answer {
        drop(admit(&self.peer).await?);
        let lines = with(&self.shared, begin)?;
        self.peer.following.set();
        Ok(([(CONTENT_TYPE, JSON_LINES)], Body::new(LineBody(lines))).into_response())
    }

    /// Answers a request that changes something with a stream of bytes without a length, of a given
    /// content type, and a header with the number that `begin` returns.
    pub fn stream(
        self,
        content_type: &'static str,
        header: &'static str,
        begin: impl FnOnce(&mut S) -> Result<(u64, Lines), Refusal>,
    ) -> Answer {
        if self.peer.is_gone() {
            return Err(gone().into());
        }
        let (number, parts) = with(&self.shared, begin)?;
        self.peer.following.set();
        let headers =
            [(CONTENT_TYPE.as_str(), content_type.to_owned()), (header, number.to_string())];
        Ok((headers, Body::new(LineBody(parts))).into_response())
    }

    /// Answers in slices. A refusal or failure before the first part of the text is reported as
    /// such.
    pub async fn sliced<A: Sliced<S>>(
        self,
        content_type: &'static str,
        begin: impl FnOnce(&mut S) -> Result<A, Refusal>,
    ) -> Answer {
        let Self { shared, peer } = self;
        let turn = admit(&peer).await?;
        let mut answer = with(&shared, begin)?;
        let mut step: Steps = Box::new(move || {
            if peer.is_gone() {
                return Err(gone());
            }
            with(&shared, |service| answer.step(service))
        });
        let mut ready = Bytes::new();
        // Waits for a second part: so a short text is known to be complete, and its length is
        // reported.
        let ended = loop {
            match step()? {
                Step::Again => yield_now().await,
                Step::After(time) => sleep(time).await,
                Step::Part(text) if ready.is_empty() => ready = text,
                Step::Part(text) => {
                    ready = [ready, text].concat().into();
                    break false;
                }
                Step::Done => break true,
            }
            turn.goes_on();
        };
        let more = (!ended).then_some(step);
        let body = Body::new(Text { ready, more, turn, pause: None });
        Ok(([(CONTENT_TYPE, content_type)], body).into_response())
    }
}

/// Admits a reader once others have had their turn, if it is still there.
async fn admit(peer: &Peer) -> Result<Turn, Refusal> {
    let turn = peer.turn().await;
    // A client that changes something, or connects, comes first: requests that arrived in the
    // meantime are handled now.
    yield_now().await;
    if peer.is_gone() { Err(gone()) } else { Ok(turn) }
}

/// The refusal for a client that did not wait for its answer; nobody reads it.
fn gone() -> Refusal {
    Refusal::Failed("the client is gone".to_owned())
}

/// An answer with its complete text, as a body that holds the turn until all of it was taken.
fn whole(text: Bytes, turn: Turn) -> Body {
    Body::new(Text { ready: text, more: None, turn, pause: None })
}

/// Locks the service for one call.
fn with<S, T>(
    shared: &Shared<S>,
    call: impl FnOnce(&mut S) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    // The service changes its state only after everything that can fail, so the state is consistent
    // even after a panic in another request.
    call(&mut *shared.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The remaining slices of an answer.
type Steps = Box<dyn FnMut() -> Result<Step, Refusal> + Send>;

/// A text that is sent while it is made.
struct Text {
    /// Text that was made but not sent yet.
    ready: Bytes,
    /// The remaining slices; `None` if the text is complete.
    more: Option<Steps>,
    turn: Turn,
    /// A pause in which others have their turn.
    pause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl HttpBody for Text {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            if !self.ready.is_empty() {
                let part = self.ready.len().min(PART);
                let part = self.ready.split_to(part);
                self.turn.goes_on();
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            let Some(more) = &mut self.more else { return Poll::Ready(None) };
            let step = match more() {
                Ok(step) => step,
                Err(refusal) => {
                    // The connection breaks off, so that nobody takes the text for complete.
                    tracing::debug!("an answer ended early: {refusal}");
                    self.more = None;
                    return Poll::Ready(Some(Err(io::Error::other(refusal))));
                }
            };
            let pause: Pin<Box<dyn Future<Output = ()> + Send>> = match step {
                Step::After(time) => Box::pin(sleep(time)),
                Step::Again | Step::Part(_) | Step::Done => Box::pin(yield_now()),
            };
            match step {
                Step::Part(text) => self.ready = text,
                Step::Done => self.more = None,
                Step::Again | Step::After(_) => {}
            }
            self.pause = self.more.is_some().then_some(pause);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.more.is_none() && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.more {
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(self.ready.len() as u64),
        }
    }
}
