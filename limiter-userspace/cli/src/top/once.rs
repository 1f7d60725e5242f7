//! A frame as text, out of one pass over all sources.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use limiter_api::client::{Client, ClientError};
use limiter_api::render;
use limiter_api::requests::Requests;
use limiter_api::sources::top::Top;
use limiter_api::sources::{By, SourceList};
use limiter_text::plain::clean;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::output::Output;

/// The frame as a document.
#[derive(Debug, serde::Serialize)]
struct Once {
    #[serde(flatten)]
    list: SourceList,
    /// Rules for requests, where a `limiter serve` reports.
    #[serde(flatten, skip_serializing_if = "is_empty")]
    requests: Requests,
}

/// What `limiter serve` reports.
fn requests(client: &Client) -> Result<Requests, ClientError> {
    match client.get("/v1/requests") {
        // A daemon of an older version shows no requests.
        Err(ClientError::Refused { status: 404, .. }) => Ok(Requests::default()),
        answer => answer,
    }
}

fn is_empty(requests: &Requests) -> bool {
    requests.processes.is_empty()
}

pub(super) fn once(
    client: &Client,
    by: By,
    within: Option<&str>,
    interval: Duration,
    output: Output,
) -> Result<Answer, Failure> {
    let mut path = format!("/v1/sources?by={}&limit=20", by.name());
    if let Some(within) = within {
        let _: std::fmt::Result = write!(path, "&prefix={within}");
    }
    if output != Output::Table {
        let once = Once { list: client.get(&path)?, requests: requests(client)? };
        return Ok(output.document(&once)?.unwrap_or_default().into());
    }
    let look = || client.get::<Top>("/v1/top?limit=1");
    look()?;
    thread::sleep(interval);
    let now = look()?;
    let list: SourceList = client.get(&path)?;
    let headline = now.headline.as_deref().map_or_else(String::new, clean);
    let limits = if now.bypass { "limits off" } else { "limits on" };
    let mut text = format!("{limits}, generation {}\n{headline}\n\n", now.generation);
    text.push_str(&render::text(&list));
    let requests = requests(client)?;
    if !requests.processes.is_empty() {
        text.push('\n');
        text.push_str(&render::text(&requests));
    }
    Ok(text.into())
}
