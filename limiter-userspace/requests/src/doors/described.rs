//! Envoy's rate limit services as server reflection describes them: of Envoy's own description, the
//! messages and fields that this server reads and writes.

/// A descriptor set of protocol buffers, which the test below makes.
pub(crate) const DESCRIBED: &[u8] = include_bytes!("described.bin");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use envoy_types::pb::envoy::config::core::v3::HeaderValue;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
        Entry, RateLimitOverride,
    };
    use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::BucketAction;
    use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::bucket_action::{
        AbandonAction, BucketAction as What, QuotaAssignmentAction,
    };
    use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
    use envoy_types::pb::envoy::service::rate_limit_quota::v3::{
        BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    };
    use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::Strategy;
    use envoy_types::pb::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
    use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
        DescriptorStatus, RateLimit,
    };
    use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
    use envoy_types::pb::google::protobuf::{Duration, UInt32Value, UInt64Value};
    use prost::Message as _;
    use prost::encoding::{WireType, decode_key, decode_varint};
    use prost_types::field_descriptor_proto::Type;
    use prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    };

    use super::*;

    const UPDATE: &str =
        "LIMITER_UPDATE_DESCRIBED=1 cargo test -p limiter-requests --lib described";

    /// The description that the types of messages are generated from.
    fn of_envoy() -> FileDescriptorSet {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // Crates of other systems may not be there.
        let system = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        cargo.args([
            "metadata",
            "--offline",
            "--format-version",
            "1",
            "--filter-platform",
            &system,
        ]);
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let package = packages.iter().find(|package| package["name"] == "envoy-types").unwrap();
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
        let bytes = std::fs::read(manifest.with_file_name("src/generated/types.bin")).unwrap();
        FileDescriptorSet::decode(&*bytes).unwrap()
    }

    /// What messages have, by full names: of enumerations, messages and fields.
    type Met = BTreeSet<String>;

    /// A message by its full name.
    fn find<'a>(files: &'a FileDescriptorSet, name: &str) -> &'a DescriptorProto {
        let in_file = |file: &'a FileDescriptorProto| {
            let mut path = name.strip_prefix(&format!(".{}.", file.package()))?.split('.');
            let first = path.next()?;
            let first = file.message_type.iter().find(|of| of.name() == first)?;
            path.try_fold(first, |of, name| of.nested_type.iter().find(|of| of.name() == name))
        };
        files.file.iter().find_map(in_file).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Reads a message by its description, and notes what it has.
    fn read(files: &FileDescriptorSet, name: &str, mut bytes: &[u8], met: &mut Met) {
        let message = find(files, name);
        met.insert(name.to_owned());
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).unwrap();
            let field =
                message.field.iter().find(|field| i64::from(field.number()) == i64::from(number));
            let field = field.unwrap_or_else(|| panic!("{name} has no field {number}"));
            met.insert(format!("{name}.{}", field.name()));
            let value = decode_varint(&mut bytes).unwrap();
            match field.r#type() {
                Type::Message | Type::String | Type::Bytes => {
                    assert_eq!(wire, WireType::LengthDelimited, "{}", field.name());
                    let inner;
                    (inner, bytes) = bytes.split_at(usize::try_from(value).unwrap());
                    if field.r#type() == Type::Message {
                        read(files, field.type_name(), inner, met);
                    }
                }
                of => {
                    assert_eq!(wire, WireType::Varint, "{}", field.name());
                    if of == Type::Enum {
                        met.insert(field.type_name().to_owned());
                    }
                }
            }
        }
    }

    /// A message without what nobody has.
    fn message(within: &str, message: &DescriptorProto, met: &Met) -> Option<DescriptorProto> {
        let name = format!("{within}.{}", message.name());
        let mut kept = message.clone();
        kept.field.retain(|field| met.contains(&format!("{name}.{}", field.name())));
        for field in &mut kept.field {
            *field = FieldDescriptorProto { options: None, json_name: None, ..field.clone() };
        }
        kept.nested_type =
            message.nested_type.iter().filter_map(|of| self::message(&name, of, met)).collect();
        kept.enum_type.retain(|of| met.contains(&format!("{name}.{}", of.name())));
        (kept.reserved_range, kept.reserved_name) = (Vec::new(), Vec::new());
        kept.options = kept.options.filter(prost_types::MessageOptions::map_entry);
        for one_of in &mut kept.oneof_decl {
            one_of.options = None;
        }
        if !kept.field.iter().any(|field| field.oneof_index.is_some()) {
            kept.oneof_decl.clear();
        }
        (met.contains(&name) || !kept.nested_type.is_empty()).then_some(kept)
    }

    /// A file without what nobody has.
    fn file(file: &FileDescriptorProto, met: &Met) -> Option<FileDescriptorProto> {
        let within = format!(".{}", file.package());
        let is_met = |name: &str| met.contains(&format!("{within}.{name}"));
        let mut kept = FileDescriptorProto {
            name: file.name.clone(),
            package: file.package.clone(),
            dependency: file.dependency.clone(),
            syntax: file.syntax.clone(),
            message_type: file
                .message_type
                .iter()
                .filter_map(|of| message(&within, of, met))
                .collect(),
            enum_type: file.enum_type.iter().filter(|of| is_met(of.name())).cloned().collect(),
            service: file.service.clone(),
            ..FileDescriptorProto::default()
        };
        kept.service.retain(|service| {
            service.method.iter().all(|method| met.contains(method.input_type()))
        });
        for service in &mut kept.service {
            service.options = None;
            service.method.iter_mut().for_each(|method| method.options = None);
        }
        (!kept.message_type.is_empty() || !kept.enum_type.is_empty()).then_some(kept)
    }

    /// What is committed is of Envoy's description all that a message has that is read or written
    /// here, and nothing else.
    #[test]
    fn the_description_is_that_of_envoy() {
        let text = || "x".to_owned();
        let descriptor = RateLimitDescriptor {
            entries: vec![Entry { key: text(), value: text() }],
            limit: Some(RateLimitOverride { requests_per_unit: 1, unit: 6 }),
            hits_addend: Some(UInt64Value { value: 1 }),
            is_negative_hits: true,
        };
        let request =
            RateLimitRequest { domain: text(), descriptors: vec![descriptor], hits_addend: 1 };
        let status = DescriptorStatus {
            code: 1,
            current_limit: Some(RateLimit { name: text(), requests_per_unit: 1, unit: 7 }),
            limit_remaining: 1,
            duration_until_reset: Some(Duration { seconds: 1, nanos: 1 }),
            quota: None,
        };
        let header = HeaderValue { key: text(), value: text(), raw_value: vec![1] };
        let response = RateLimitResponse {
            overall_code: 2,
            statuses: vec![status],
            response_headers_to_add: vec![header],
            ..RateLimitResponse::default()
        };
        let bucket = || Some(BucketId { bucket: [(text(), text())].into() });
        let time = || Some(Duration { seconds: 1, nanos: 1 });
        let usage = BucketQuotaUsage {
            bucket_id: bucket(),
            time_elapsed: time(),
            num_requests_allowed: 1,
            num_requests_denied: 1,
        };
        let reports =
            RateLimitQuotaUsageReports { domain: text(), bucket_quota_usages: vec![usage] };
        let action = |strategy: Option<Strategy>| BucketAction {
            bucket_id: bucket(),
            bucket_action: Some(match strategy {
                Some(strategy) => What::QuotaAssignmentAction(QuotaAssignmentAction {
                    assignment_time_to_live: time(),
                    rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
                }),
                None => What::AbandonAction(AbandonAction {}),
            }),
        };
        let tokens = TokenBucket {
            max_tokens: 1,
            tokens_per_fill: Some(UInt32Value { value: 1 }),
            fill_interval: time(),
        };
        let actions = [Some(Strategy::TokenBucket(tokens)), Some(Strategy::BlanketRule(1)), None];
        let actions = RateLimitQuotaResponse { bucket_action: actions.map(action).into() };
        let (envoy, mut met) = (of_envoy(), Met::new());
        for (name, bytes) in [
            ("ratelimit.v3.RateLimitRequest", request.encode_to_vec()),
            ("ratelimit.v3.RateLimitResponse", response.encode_to_vec()),
            ("rate_limit_quota.v3.RateLimitQuotaUsageReports", reports.encode_to_vec()),
            ("rate_limit_quota.v3.RateLimitQuotaResponse", actions.encode_to_vec()),
        ] {
            read(&envoy, &format!(".envoy.service.{name}"), &bytes, &mut met);
        }
        let mut files: Vec<_> = envoy.file.iter().filter_map(|of| file(of, &met)).collect();
        let names: Met = files.iter().map(|file| file.name().to_owned()).collect();
        for file in &mut files {
            file.dependency.retain(|of| names.contains(of));
        }
        let made = FileDescriptorSet { file: files };
        if std::env::var_os("LIMITER_UPDATE_DESCRIBED").is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doors/described.bin");
            std::fs::write(path, made.encode_to_vec()).unwrap();
        }
        assert_eq!(FileDescriptorSet::decode(DESCRIBED).unwrap(), made, "{UPDATE}");
    }
}
