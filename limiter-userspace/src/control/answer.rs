//! Answers to those who read: each waits for its turn, nobody who is gone is answered, and of a large answer no more
//! is made than the client takes.

use std::io;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::api::Refusal;
use super::parts::PART;
use super::peer::Peer;
use super::server::{Asked, Handler, Shared, Slices, Step};
use super::turns::Turn;

/// JSON.
pub(super) const JSON: &str = "application/json";

/// Lets a reader in: others have had their turn, and it is still there.
pub(super) async fn admit(peer: &Peer) -> Result<Turn, Refusal> {
    let turn = peer.turn().await;
    // Whoever changes, or connects, comes before: what has come meanwhile is looked at now.
    yield_now().await;
    if peer.is_gone() { Err(gone()) } else { Ok(turn) }
}

/// Of a client that did not wait for its answer: nobody reads it.
pub(super) fn gone() -> Refusal {
    Refusal::Failed("the client is gone".to_owned())
}

/// An answer whose text is there, as a body that holds the turn until all of it was taken.
pub(super) fn whole(text: Bytes, turn: Turn) -> Body {
    Body::new(Text { ready: text, more: None, turn, pause: None })
}

/// An answer that is made in slices. What is refused, or fails, before the first part of the text is told as such.
pub(super) async fn sliced(
    handler: Shared,
    peer: Peer,
    asked: Asked,
    content_type: &'static str,
) -> Result<Response, Refusal> {
    let turn = admit(&peer).await?;
    let slices = with(&handler, |handler| handler.begin(&asked))?;
    let mut more = More { handler, peer, slices };
    let mut ready = Bytes::new();
    // A part more than the first: so a short text is known to be all of it, and its length is told.
    let ended = loop {
        match more.step()? {
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
    let more = (!ended).then_some(more);
    let body = Body::new(Text { ready, more, turn, pause: None });
    Ok(([(CONTENT_TYPE, content_type)], body).into_response())
}

/// The handler, for one call.
pub(super) fn with<T>(
    handler: &Shared,
    call: impl FnOnce(&mut dyn Handler) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    // The handler changes its state only after everything that can fail, so it is whole even after
    // a panic in another request.
    call(&mut *handler.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What the rest of an answer is made of.
struct More {
    handler: Shared,
    peer: Peer,
    slices: Slices,
}

impl More {
    fn step(&mut self) -> Result<Step, Refusal> {
        if self.peer.is_gone() {
            return Err(gone());
        }
        with(&self.handler, |handler| handler.go_on(&mut self.slices))
    }
}

/// A text that is sent as it is made.
struct Text {
    /// What was made and not sent.
    ready: Bytes,
    /// None if that is all.
    more: Option<More>,
    turn: Turn,
    /// Until others have had their turn.
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
            let step = match more.step() {
                Ok(step) => step,
                Err(refusal) => {
                    // The connection breaks off, so nobody takes the text for whole.
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
