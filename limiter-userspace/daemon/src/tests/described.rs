//! docs/openapi.json, made from the types of `limiter-api` and the routes.

use std::collections::BTreeSet;

use limiter_api::{ErrorBody, words};
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::*;

/// The handlers by subject: the description has these paths as its tags.
mod api {
    pub(super) use crate::routes::bans::request_bans;
    pub(super) use crate::routes::sources::{source, top};
    pub(super) use crate::routes::status::history;
    pub(super) use crate::routes::{
        bans, bypass, capture, check, cluster, events, explain, limits, lists, metrics, openapi,
        page, requests, rules, sources, stats, status, utilization,
    };
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "limiter",
        description = "HTTP on the daemon's unix socket. Anybody who may connect may GET; everything \
                       else takes root or the daemon's own user."
    ),
    servers((url = "http://limiter", description = "The host name is not looked at, but of a browser.")),
    paths(
        api::status::status,
        api::limits::list,
        api::limits::set,
        api::limits::unset,
        api::stats::stats,
        api::sources::sources,
        api::source::source,
        api::top::top,
        api::history::history,
        api::utilization::utilization,
        api::check::check,
        api::explain::explain,
        api::lists::all,
        api::lists::list,
        api::lists::unlist,
        api::bans::list,
        api::bans::ban,
        api::bans::unban,
        api::request_bans::by_requests,
        api::requests::requests,
        api::requests::report,
        api::events::events,
        api::capture::capture,
        api::capture::captures,
        api::capture::stop,
        api::rules::reload,
        api::rules::export,
        api::rules::apply,
        api::rules::compare,
        api::rules::confirm,
        api::rules::revert,
        api::bypass::bypass,
        api::bypass::detach,
        api::cluster::cluster,
        api::openapi::openapi,
        api::metrics::metrics,
        api::page::page,
    ),
    components(schemas(
        ErrorBody,
        words::AnySource,
        words::Destination,
        words::Dscp,
        words::Fragment,
        words::FrameLength,
        words::IcmpType,
        words::SourcePort,
        words::TimeToLive,
        words::InterfaceName,
        words::Moment,
        words::OneDirection,
        words::Prefix,
        words::Port,
        words::Prefixes,
        words::SourceCount,
        words::TcpFlags,
        words::VlanId,
        words::Within,
    ))
)]
struct Described;

/// The document, with what holds of every request and every answer.
fn described() -> Value {
    let mut document = serde_json::to_value(Described::openapi()).unwrap();
    let paths = document["paths"].as_object_mut().unwrap();
    let operations = paths.iter_mut().flat_map(|(path, methods)| {
        methods.as_object_mut().unwrap().iter_mut().map(move |(method, of)| (path, method, of))
    });
    let mut asked = BTreeSet::new();
    for (path, method, operation) in operations {
        // Functions of several subjects have the same name.
        operation.as_object_mut().unwrap().remove("operationId");
        referred(&operation["requestBody"], &mut asked);
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            never_null(&mut parameter["schema"]);
        }
        if path != "/v1/openapi.json" {
            add_errors(method, operation);
        }
    }
    let schemas = document["components"]["schemas"].as_object_mut().unwrap();
    for _ in 0..schemas.len() {
        for (name, schema) in schemas.iter() {
            if asked.contains(name) {
                referred(schema, &mut asked);
            }
        }
    }
    for (name, schema) in schemas.iter_mut() {
        let Some(properties) = schema["properties"].as_object() else { continue };
        // An answer has all of its fields, except those with a documented default.
        let all: Vec<_> = properties.iter().filter(|(_, of)| of.get("default").is_none()).collect();
        let required = all.into_iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if !asked.contains(name) {
            schema["required"] = json!(required);
        } else if schema.get("required").is_none() {
            schema["required"] = json!([]);
        }
        schema["additionalProperties"] = json!(false);
    }
    document
}

/// Names of the schemas that a value refers to.
fn referred(value: &Value, to: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(path)) = object.get("$ref") {
                to.insert(path.rsplit('/').next().unwrap().to_owned());
            }
            object.values().for_each(|value| referred(value, to));
        }
        Value::Array(list) => list.iter().for_each(|value| referred(value, to)),
        _ => {}
    }
}

/// A parameter is there or not: nothing in a query is `null`.
fn never_null(schema: &mut Value) {
    if let Some(kinds) = schema["type"].as_array() {
        schema["type"] = kinds.iter().find(|kind| **kind != "null").unwrap().clone();
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        *schema = choices.iter().find(|choice| choice["type"] != "null").unwrap().clone();
    }
}

/// The error answers, by what may be wrong with such a request.
fn add_errors(method: &str, operation: &mut Value) {
    let body = operation.get("requestBody").is_some();
    let wrong = body || operation.get("parameters").is_some();
    let errors = [
        (wrong, "400", "The request is wrong."),
        (method != "get", "403", "Not this user."),
        (true, "409", "Not in this state."),
        (body, "413", "The body is too long."),
        (true, "500", "The daemon or the kernel failed."),
    ];
    for (_, status, description) in errors.into_iter().filter(|(may, ..)| *may) {
        if operation["responses"].get(status).is_none() {
            operation["responses"][status] = json!({"description": description});
        }
    }
    let responses = operation["responses"].as_object_mut().unwrap();
    for (_, response) in responses.iter_mut().filter(|(_, of)| of.get("content").is_none()) {
        response["content"] = error_content();
    }
}

fn error_content() -> Value {
    json!({"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}})
}

/// The file is written if `LIMITER_UPDATE_OPENAPI` is in the environment.
#[test]
fn the_committed_description_is_that_of_the_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let text = serde_json::to_string_pretty(&described()).unwrap() + "\n";
    if std::env::var_os("LIMITER_UPDATE_OPENAPI").is_some() {
        fs::write(path, text).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(path).unwrap() == text,
        "docs/openapi.json is not that of the types: write it anew with \
         LIMITER_UPDATE_OPENAPI=1 cargo test -p limiter-daemon --lib the_committed_description"
    );
}
