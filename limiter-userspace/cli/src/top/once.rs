//! A frame as text, out of one pass over all sources.

use limiter_api::client::{Client, ClientError};
use limiter_api::render;
use limiter_api::requests::Requests;
use limiter_api::sources::{AskSources, By, SOURCES, SourceList};
use limiter_api::status::Status;

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
    output: Output,
) -> Result<Answer, Failure> {
    let ask = |by: By, count: u32| {
        let prefix = within.map(str::to_owned);
        client.ask::<SourceList>("/v1/sources", &AskSources { by, limit: Some(count), prefix })
    };
    let list = ask(by, SOURCES)?;
    let requests = requests(client)?;
    if output != Output::Table {
        return Ok(output.document(&Once { list, requests })?.unwrap_or_default().into());
    }
    let status: Status = client.get("/v1/status")?;
    // Rows of an order without rates have none that could contradict.
    let headline = if by.is_rate() { list.headline } else { ask(By::DropRate, 1)?.headline };
    let list = SourceList { headline, ..list };
    let limits = if status.bypass { "limits off" } else { "limits on" };
    let mut text = format!("{limits}, generation {}\n", status.generation);
    text.push_str(&render::text(&list));
    if !requests.processes.is_empty() {
        text.push('\n');
        text.push_str(&render::text(&requests));
    }
    Ok(text.into())
}
