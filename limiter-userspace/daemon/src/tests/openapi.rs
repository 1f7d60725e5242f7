//! The description in docs/openapi.json against the routes and what they answer: requests are made
//! from it, right ones and wrong ones, for the real router, the real service and the data path in
//! memory.

use std::collections::BTreeSet;
use std::sync::Mutex;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use limiter_json_schema::valid;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::routes;
use crate::service::Shared;

/// Methods that a path may have.
const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

fn description() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Path, method and description of each operation.
fn operations(description: &Value) -> Vec<(String, String, Value)> {
    let paths = description["paths"].as_object().unwrap();
    let of = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().unwrap().clone();
        let path = path.clone();
        methods.into_iter().map(move |(method, operation)| (path.clone(), method, operation))
    };
    paths.iter().flat_map(of).collect()
}

/// The router's paths are those of the description. The methods of a path are found by requests:
/// `right_requests_are_made_for_every_operation` and `other_methods_and_paths_are_refused_in_json`.
#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let description = description();
    let paths = description["paths"].as_object().unwrap();
    let described: BTreeSet<_> =
        paths.keys().map(|path| path.replace("{address}", "ADDRESS")).collect();
    assert_eq!(described, routes::routes().paths().into_iter().collect());
    assert!(described.len() > 15);
    assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
}

/// Choices out of bytes: fewer and smaller bytes are simpler choices, so that proptest can shrink
/// them.
struct Choices {
    bytes: std::vec::IntoIter<u8>,
}

impl Choices {
    fn below(&mut self, end: usize) -> usize {
        usize::from(self.bytes.next().unwrap_or(0)) % end
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == many - 1
    }

    fn is_empty(&self) -> bool {
        self.bytes.as_slice().is_empty()
    }

    fn of<'a>(&mut self, list: &'a [Value]) -> &'a Value {
        let index = self.below(list.len());
        &list[index]
    }

    fn text(&mut self) -> String {
        let length = self.below(12);
        let alphabet = ['0', 'a', '.', ':', '/', '\u{e9}', '"', '\0', '%', '-', '9', ' '];
        (0..length).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }

    fn fitting(&mut self, schema: &Value, root: &Value) -> Value {
        if let Some(path) = schema.get("$ref") {
            let path = path.as_str().unwrap().strip_prefix('#').unwrap();
            return self.fitting(root.pointer(path).unwrap(), root);
        }
        for word in ["enum", "oneOf"] {
            if let Some(Value::Array(list)) = schema.get(word) {
                let chosen = self.of(list).clone();
                return if word == "enum" { chosen } else { self.fitting(&chosen, root) };
            }
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.of(kinds).clone(),
            kind => kind.clone(),
        };
        let examples = schema.get("examples").and_then(Value::as_array);
        match kind.as_str().unwrap() {
            "null" => Value::Null,
            "boolean" => json!(self.one_in(2)),
            "string" | "integer" if examples.is_some() && !self.one_in(6) => {
                self.of(examples.unwrap()).clone()
            }
            "string" => json!(self.text()),
            "integer" => {
                let most = schema.get("maximum").and_then(Value::as_u64).unwrap_or(u64::MAX);
                let numbers = [0, 1, 255, 1 << 17, 1 << 40, u64::MAX];
                json!(numbers[self.below(numbers.len())].min(most))
            }
            "array" => {
                let length = self.below(4);
                (0..length).map(|_| self.fitting(&schema["items"], root)).collect()
            }
            "object" => {
                let required = schema["required"].as_array().unwrap();
                let mut object = Map::new();
                for (name, of) in schema["properties"].as_object().unwrap() {
                    if required.contains(&json!(name)) || self.one_in(2) {
                        object.insert(name.clone(), self.fitting(of, root));
                    }
                }
                Value::Object(object)
            }
            other => panic!("{other}"),
        }
    }

    /// Breaks a document, most of the time.
    fn broken(&mut self, document: &mut Value) {
        let junk = [json!(null), json!(-1), json!(1.5), json!("x"), json!([]), json!({"x": 1})];
        match document {
            Value::Object(object) if !object.is_empty() && !self.one_in(4) => {
                let names: Vec<_> = object.keys().cloned().collect();
                let name = &names[self.below(names.len())];
                match self.below(3) {
                    0 => drop(object.remove(name)),
                    1 => drop(object.insert("unheard_of".to_owned(), json!(1))),
                    _ => self.broken(object.get_mut(name).unwrap()),
                }
            }
            Value::Array(list) if !list.is_empty() && !self.one_in(3) => {
                let index = self.below(list.len());
                self.broken(&mut list[index]);
            }
            other => *other = self.of(&junk).clone(),
        }
    }
}

/// Escapes all characters that are not plain in a URL.
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"./:-".contains(&byte) {
            escaped.push(byte.into());
        } else {
            write!(escaped, "%{byte:02x}").unwrap();
        }
    }
    escaped
}

/// A request for an operation, and whether it is meant to be right.
fn request(
    choices: &mut Choices,
    description: &Value,
    (path, method, operation): &(String, String, Value),
) -> (Request<Body>, bool) {
    let mut right = true;
    let (mut path, mut query) = (path.clone(), Vec::new());
    let parameters = operation.get("parameters").and_then(Value::as_array);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        // An answer without an end: the tests of events follow.
        if name == "follow" {
            continue;
        }
        let value = choices.fitting(&parameter["schema"], description);
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut value = escaped(&value);
        if choices.one_in(12) {
            right = false;
            value = ["%ff", "%", "%00", ""][choices.below(4)].to_owned();
        }
        if parameter["in"] == "path" {
            path = path.replace(&format!("{{{name}}}"), &value);
        } else if parameter["required"] == true || choices.one_in(2) {
            match choices.below(16) {
                13 => right = false,
                14 => {
                    right = false;
                    query.push(format!("{name}={value}"));
                    query.push(format!("{name}={value}"));
                }
                15 => {
                    right = false;
                    query.push(format!("{name}x={value}"));
                }
                _ => query.push(format!("{name}={value}")),
            }
        }
    }
    let mut uri = path;
    if !query.is_empty() {
        uri = format!("{uri}?{}", query.join("&"));
    }
    let mut body = Vec::new();
    if let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema") {
        let mut document = choices.fitting(schema, description);
        if choices.one_in(3) {
            right = false;
            choices.broken(&mut document);
        }
        body = serde_json::to_vec(&document).unwrap();
        if choices.one_in(12) {
            right = false;
            body.truncate(choices.below(body.len() + 1));
        }
    }
    let request = Request::builder().method(method.to_uppercase().as_str()).uri(uri);
    (request.body(Body::from(body)).unwrap(), right)
}

type Answer = (u16, String, Vec<u8>);

const PCAPNG: &str = "application/x-pcapng";

fn ask(
    runtime: &tokio::runtime::Runtime,
    shared: &Shared,
    user: u32,
    request: Request<Body>,
) -> Answer {
    let router = crate::control::met_by(routes::router(Arc::clone(shared)), user);
    runtime.block_on(async {
        let answer = TowerToHyperService::new(router).call(request).await.unwrap();
        let (head, mut body) = answer.into_parts();
        let kind = head.headers.get("content-type").unwrap().to_str().unwrap().to_owned();
        if kind == PCAPNG {
            // A capture has no end here: its beginning is the answer.
            let begin = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
            return (head.status.as_u16(), kind, begin);
        }
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        (head.status.as_u16(), kind, body)
    })
}

/// Checks an answer against the description of the operation.
fn check_answer(
    description: &Value,
    operation: &Value,
    (status, kind, body): &Answer,
) -> Result<(), String> {
    let said = String::from_utf8_lossy(body);
    if *status >= 500 {
        return Err(format!("{status}: {said}"));
    }
    let of = &operation["responses"][status.to_string()];
    let of = of.as_object().ok_or_else(|| format!("{status} is not described: {said}"))?;
    let (described, schema) = of["content"].as_object().unwrap().iter().next().unwrap();
    if kind.split(';').next() != Some(described) {
        return Err(format!("{status} is {kind}, not {described}: {said}"));
    }
    if described == PCAPNG {
        let is_section = body.starts_with(&0x0a0d_0d0a_u32.to_le_bytes());
        return if is_section { Ok(()) } else { Err(format!("no section of pcapng: {said}")) };
    }
    if described.starts_with("text/") {
        return Ok(());
    }
    let document: Value =
        serde_json::from_slice(body).map_err(|error| format!("{error}: {said}"))?;
    valid(&schema["schema"], description, &document).map_err(|error| format!("{status}: {error}"))
}

/// A daemon behind the router; its files are removed with the first.
fn served() -> (TempDir, Fake, Shared) {
    let Daemon { directory, fake, service, stop: _ } = Daemon::start(&["192.0.2.8/30"]);
    fake.state().now = Ticks::from_nanos(5_000_000_000);
    (directory, fake, Arc::new(Mutex::new(service)))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Some requests after each other, of root or of somebody else, on the same daemon.
    #[test]
    fn no_request_is_answered_but_as_described(
        bytes in prop::collection::vec(any::<u8>(), 8..400), root in prop::bool::weighted(0.9),
    ) {
        let description = description();
        // The end of the daemon is the end of most answers: at most once in a while.
        let (mut ends, others): (Vec<_>, Vec<_>) =
            operations(&description).into_iter().partition(|(path, ..)| path == "/v1/detach");
        let end = ends.pop().unwrap();
        let (runtime, (_directory, _fake, shared)) = (runtime(), served());
        let mut choices = Choices { bytes: bytes.into_iter() };
        while !choices.is_empty() {
            let operation =
                if choices.one_in(32) { &end } else { &others[choices.below(others.len())] };
            let (request, _) = request(&mut choices, &description, operation);
            let line = format!("{} {} {:?}", request.method(), request.uri(), request.body());
            let user = if root { 0 } else { 65_534 };
            let answer = ask(&runtime, &shared, user, request);
            let checked = check_answer(&description, &operation.2, &answer);
            prop_assert!(checked.is_ok(), "{}: {}", line, checked.unwrap_err());
        }
    }
}

/// A fuzzer that never makes an accepted request would find little.
#[test]
fn right_requests_are_made_for_every_operation() {
    let description = description();
    let mut bytes = (0..u32::MAX).map(|n| n.wrapping_mul(0x9e37_79b9).to_be_bytes()[0]);
    for operation in operations(&description) {
        let runtime = runtime();
        let mut taken = false;
        for _ in 0..4_000 {
            let bytes: Vec<u8> = bytes.by_ref().take(64).collect();
            let mut choices = Choices { bytes: bytes.into_iter() };
            let (request, right) = request(&mut choices, &description, &operation);
            // Of the others another test sees to the answers: a daemon for each takes a minute.
            if !right {
                continue;
            }
            let (_directory, fake, shared) = served();
            // Something to remove.
            for (uri, body) in [
                ("/v1/limits", json!({"source": "192.0.2.7", "rate": "5/s"})),
                ("/v1/limits", json!({"interface": "fake0", "rate": "5/s"})),
                ("/v1/limits", json!({"interface": "fake0", "shared": true, "rate": "5/s"})),
                ("/v1/lists", json!({"list": "deny", "sources": ["192.0.2.7", "2001:db8::/64"]})),
            ] {
                let request = Request::builder().method("PUT").uri(uri);
                let request = request.body(Body::from(body.to_string())).unwrap();
                assert_eq!(ask(&runtime, &shared, 0, request).0, 200);
            }
            if operation.0.ends_with("/confirm") || operation.0.ends_with("/revert") {
                let none = json!({"name": "none.yaml", "text": "descriptors: []\n"});
                let rules = json!({"documents": [none], "confirm_seconds": 60});
                let request = Request::builder().method("PUT").uri("/v1/rules");
                let request = request.body(Body::from(rules.to_string())).unwrap();
                assert_eq!(ask(&runtime, &shared, 0, request).0, 200);
            }
            if operation.0 == "/v1/capture" && operation.1 == "delete" {
                let request = Request::post("/v1/capture").body(Body::from("{}")).unwrap();
                assert_eq!(ask(&runtime, &shared, 0, request).0, 200);
            }
            if operation.0 == "/v1/cluster" {
                crate::service::cluster::join(&mut shared.lock().unwrap(), cluster::alone());
            }
            let ban = limiter_common::wire::Ban { until: u64::MAX >> 1, history: 0, rule: 0 };
            fake.state().model.put_ban(&Source::V4([192, 0, 2, 7]), &ban);
            let answer = ask(&runtime, &shared, 0, request);
            check_answer(&description, &operation.2, &answer).unwrap();
            if answer.0 == 200 {
                taken = true;
                break;
            }
        }
        assert!(taken, "{} {}", operation.1, operation.0);
    }
}

#[test]
fn other_methods_and_paths_are_refused_in_json() {
    let description = description();
    let (runtime, (_directory, _fake, shared)) = (runtime(), served());
    let error = &description["components"]["schemas"]["Error"];
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in METHODS.iter().filter(|method| methods.get(*method).is_none()) {
            let uri = path.replace("{address}", "192.0.2.1");
            let request = Request::builder().method(method.to_uppercase().as_str()).uri(uri);
            let (status, _, body) = ask(&runtime, &shared, 0, request.body(Body::empty()).unwrap());
            assert_eq!(status, 405, "{method} {path}");
            valid(error, &description, &serde_json::from_slice(&body).unwrap()).unwrap();
        }
    }
    let request = Request::get("/v1/nothing").body(Body::empty()).unwrap();
    let (status, _, body) = ask(&runtime, &shared, 0, request);
    assert_eq!(status, 404);
    let reported: Value = serde_json::from_slice(&body).unwrap();
    valid(error, &description, &reported).unwrap();
    // Every path is named in the router's form.
    let reported = reported["error"].as_str().unwrap();
    let named: BTreeSet<_> = reported
        .split([' ', ','])
        .filter(|word| word.starts_with('/'))
        .filter(|word| *word != "/v1/nothing:")
        .map(str::to_owned)
        .collect();
    assert_eq!(named, routes::routes().paths().into_iter().collect(), "{reported}");
}

#[test]
fn the_description_is_served() {
    let (runtime, (_directory, _fake, shared)) = (runtime(), served());
    let request = Request::get("/v1/openapi.json").body(Body::empty()).unwrap();
    let (status, kind, body) = ask(&runtime, &shared, 65_534, request);
    assert_eq!((status, kind.as_str()), (200, "application/json"));
    assert!(serde_json::from_slice::<Value>(&body).unwrap() == description());
}

/// The check of answers must be able to fail.
#[test]
fn an_answer_that_is_not_as_described_is_found() {
    let description = description();
    let of = &description["paths"]["/v1/bypass"]["put"];
    let check = |status, kind: &str, body: &str| {
        let answer = (status, kind.to_owned(), body.as_bytes().to_vec());
        check_answer(&description, of, &answer)
    };
    let json = "application/json";
    assert!(check(200, json, "{\"engaged\":true,\"then\":null}").is_ok());
    assert!(check(200, json, "{\"engaged\":true,\"then\":null,\"more\":1}").is_err());
    assert!(check(200, json, "{}").is_err());
    assert!(check(200, "text/plain", "{\"engaged\":true}").is_err());
    assert!(check(404, json, "{\"error\":\"x\"}").is_err());
    assert!(check(500, json, "{\"error\":\"x\"}").is_err());
}
