//! Envoy's rate limit services as server reflection describes them: the messages and fields that
//! this server reads and writes. Other fields of Envoy's `.proto` files are left out.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MessageOptions, MethodDescriptorProto,
    OneofDescriptorProto, ServiceDescriptorProto,
};

const RLS: &str = "envoy/service/ratelimit/v3/rls.proto";
const RATELIMIT: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
const QUOTA: &str = "envoy/service/rate_limit_quota/v3/rlqs.proto";
const STRATEGY: &str = "envoy/type/v3/ratelimit_strategy.proto";
const TOKEN_BUCKET: &str = "envoy/type/v3/token_bucket.proto";
const UNIT: &str = "envoy/type/v3/ratelimit_unit.proto";
const BASE: &str = "envoy/config/core/v3/base.proto";
const DURATION: &str = "google/protobuf/duration.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";

/// Units with their numbers. Limits of requests have the first seven; answers know weeks, too.
const UNITS: [(&str, i32); 8] = [
    ("UNKNOWN", 0),
    ("SECOND", 1),
    ("MINUTE", 2),
    ("HOUR", 3),
    ("DAY", 4),
    ("MONTH", 5),
    ("YEAR", 6),
    ("WEEK", 7),
];

/// The files.
pub(crate) fn described() -> FileDescriptorSet {
    let shared = [duration(), wrappers(), unit(), base(), ratelimit(), token_bucket(), strategy()];
    FileDescriptorSet { file: shared.into_iter().chain([rls(), quota()]).collect() }
}

fn file(name: &str, package: &str, imports: &[&str]) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        dependency: imports.iter().map(|&import| import.to_owned()).collect(),
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

fn message(name: &str, field: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto { name: Some(name.to_owned()), field, ..DescriptorProto::default() }
}

fn field(name: &str, number: i32, r#type: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(r#type.into()),
        ..FieldDescriptorProto::default()
    }
}

/// A field whose type has a name.
fn named(name: &str, number: i32, r#type: Type, of: &str) -> FieldDescriptorProto {
    FieldDescriptorProto { type_name: Some(of.to_owned()), ..field(name, number, r#type) }
}

fn list(field: FieldDescriptorProto) -> FieldDescriptorProto {
    FieldDescriptorProto { label: Some(Label::Repeated.into()), ..field }
}

fn names(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
    let value = |&(name, number): &(&str, i32)| EnumValueDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        ..EnumValueDescriptorProto::default()
    };
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: values.iter().map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}

fn duration() -> FileDescriptorProto {
    let fields = vec![field("seconds", 1, Type::Int64), field("nanos", 2, Type::Int32)];
    FileDescriptorProto {
        message_type: vec![message("Duration", fields)],
        ..file(DURATION, "google.protobuf", &[])
    }
}

fn wrappers() -> FileDescriptorProto {
    let wrapper = |name, of| message(name, vec![field("value", 1, of)]);
    FileDescriptorProto {
        message_type: vec![
            wrapper("UInt32Value", Type::Uint32),
            wrapper("UInt64Value", Type::Uint64),
        ],
        ..file(WRAPPERS, "google.protobuf", &[])
    }
}

fn unit() -> FileDescriptorProto {
    FileDescriptorProto {
        enum_type: vec![names("RateLimitUnit", &UNITS[..7])],
        ..file(UNIT, "envoy.type.v3", &[])
    }
}

fn base() -> FileDescriptorProto {
    let fields = vec![
        field("key", 1, Type::String),
        field("value", 2, Type::String),
        field("raw_value", 3, Type::Bytes),
    ];
    FileDescriptorProto {
        message_type: vec![message("HeaderValue", fields)],
        ..file(BASE, "envoy.config.core.v3", &[])
    }
}

fn ratelimit() -> FileDescriptorProto {
    let of = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
    let entry =
        message("Entry", vec![field("key", 1, Type::String), field("value", 2, Type::String)]);
    let limit = message(
        "RateLimitOverride",
        vec![
            field("requests_per_unit", 1, Type::Uint32),
            named("unit", 2, Type::Enum, ".envoy.type.v3.RateLimitUnit"),
        ],
    );
    let fields = vec![
        list(named("entries", 1, Type::Message, &format!("{of}.Entry"))),
        named("limit", 2, Type::Message, &format!("{of}.RateLimitOverride")),
        named("hits_addend", 3, Type::Message, ".google.protobuf.UInt64Value"),
        field("is_negative_hits", 4, Type::Bool),
    ];
    let descriptor = DescriptorProto {
        nested_type: vec![entry, limit],
        ..message("RateLimitDescriptor", fields)
    };
    FileDescriptorProto {
        message_type: vec![descriptor],
        ..file(RATELIMIT, "envoy.extensions.common.ratelimit.v3", &[UNIT, WRAPPERS])
    }
}

fn rls() -> FileDescriptorProto {
    let of = ".envoy.service.ratelimit.v3.RateLimitResponse";
    let request = message(
        "RateLimitRequest",
        vec![
            field("domain", 1, Type::String),
            list(named(
                "descriptors",
                2,
                Type::Message,
                ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor",
            )),
            field("hits_addend", 3, Type::Uint32),
        ],
    );
    let limit = DescriptorProto {
        enum_type: vec![names("Unit", &UNITS)],
        ..message(
            "RateLimit",
            vec![
                field("requests_per_unit", 1, Type::Uint32),
                named("unit", 2, Type::Enum, &format!("{of}.RateLimit.Unit")),
                field("name", 3, Type::String),
            ],
        )
    };
    let status = message(
        "DescriptorStatus",
        vec![
            named("code", 1, Type::Enum, &format!("{of}.Code")),
            named("current_limit", 2, Type::Message, &format!("{of}.RateLimit")),
            field("limit_remaining", 3, Type::Uint32),
            named("duration_until_reset", 4, Type::Message, ".google.protobuf.Duration"),
        ],
    );
    let header = ".envoy.config.core.v3.HeaderValue";
    let response = DescriptorProto {
        enum_type: vec![names("Code", &[("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)])],
        nested_type: vec![limit, status],
        ..message(
            "RateLimitResponse",
            vec![
                named("overall_code", 1, Type::Enum, &format!("{of}.Code")),
                list(named("statuses", 2, Type::Message, &format!("{of}.DescriptorStatus"))),
                list(named("response_headers_to_add", 3, Type::Message, header)),
            ],
        )
    };
    let asked = ".envoy.service.ratelimit.v3.RateLimitRequest";
    FileDescriptorProto {
        message_type: vec![request, response],
        service: vec![service("RateLimitService", method("ShouldRateLimit", asked, of))],
        ..file(RLS, "envoy.service.ratelimit.v3", &[RATELIMIT, BASE, DURATION])
    }
}

fn method(name: &str, input: &str, output: &str) -> MethodDescriptorProto {
    MethodDescriptorProto {
        name: Some(name.to_owned()),
        input_type: Some(input.to_owned()),
        output_type: Some(output.to_owned()),
        ..MethodDescriptorProto::default()
    }
}

fn service(name: &str, method: MethodDescriptorProto) -> ServiceDescriptorProto {
    ServiceDescriptorProto { name: Some(name.to_owned()), method: vec![method], options: None }
}

fn token_bucket() -> FileDescriptorProto {
    let fields = vec![
        field("max_tokens", 1, Type::Uint32),
        named("tokens_per_fill", 2, Type::Message, ".google.protobuf.UInt32Value"),
        named("fill_interval", 3, Type::Message, ".google.protobuf.Duration"),
    ];
    FileDescriptorProto {
        message_type: vec![message("TokenBucket", fields)],
        ..file(TOKEN_BUCKET, "envoy.type.v3", &[WRAPPERS, DURATION])
    }
}

fn strategy() -> FileDescriptorProto {
    let of = ".envoy.type.v3.RateLimitStrategy";
    let one_of =
        |field: FieldDescriptorProto| FieldDescriptorProto { oneof_index: Some(0), ..field };
    let fields = vec![
        one_of(named("blanket_rule", 1, Type::Enum, &format!("{of}.BlanketRule"))),
        one_of(named("token_bucket", 3, Type::Message, ".envoy.type.v3.TokenBucket")),
    ];
    let strategy = DescriptorProto {
        enum_type: vec![names("BlanketRule", &[("ALLOW_ALL", 0), ("DENY_ALL", 1)])],
        oneof_decl: vec![OneofDescriptorProto { name: Some("strategy".to_owned()), options: None }],
        ..message("RateLimitStrategy", fields)
    };
    FileDescriptorProto {
        message_type: vec![strategy],
        ..file(STRATEGY, "envoy.type.v3", &[TOKEN_BUCKET])
    }
}

fn quota() -> FileDescriptorProto {
    let of = ".envoy.service.rate_limit_quota.v3";
    let duration = ".google.protobuf.Duration";
    let bucket_id = || named("bucket_id", 1, Type::Message, &format!("{of}.BucketId"));
    let usage = message(
        "BucketQuotaUsage",
        vec![
            bucket_id(),
            named("time_elapsed", 2, Type::Message, duration),
            field("num_requests_allowed", 3, Type::Uint64),
            field("num_requests_denied", 4, Type::Uint64),
        ],
    );
    let usages = format!("{of}.RateLimitQuotaUsageReports.BucketQuotaUsage");
    let reports = DescriptorProto {
        nested_type: vec![usage],
        ..message(
            "RateLimitQuotaUsageReports",
            vec![
                field("domain", 1, Type::String),
                list(named("bucket_quota_usages", 2, Type::Message, &usages)),
            ],
        )
    };
    let entry = DescriptorProto {
        options: Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
        ..message(
            "BucketEntry",
            vec![field("key", 1, Type::String), field("value", 2, Type::String)],
        )
    };
    let entries = list(named("bucket", 1, Type::Message, &format!("{of}.BucketId.BucketEntry")));
    let bucket = DescriptorProto { nested_type: vec![entry], ..message("BucketId", vec![entries]) };
    let action = format!("{of}.RateLimitQuotaResponse.BucketAction");
    let strategy = ".envoy.type.v3.RateLimitStrategy";
    let assignment = message(
        "QuotaAssignmentAction",
        vec![
            named("assignment_time_to_live", 2, Type::Message, duration),
            named("rate_limit_strategy", 3, Type::Message, strategy),
        ],
    );
    let abandon = message("AbandonAction", Vec::new());
    let one_of = |name: &str, number, of: &str| FieldDescriptorProto {
        oneof_index: Some(0),
        ..named(name, number, Type::Message, &format!("{action}.{of}"))
    };
    let bucket_action = DescriptorProto {
        nested_type: vec![assignment, abandon],
        oneof_decl: vec![OneofDescriptorProto {
            name: Some("bucket_action".to_owned()),
            options: None,
        }],
        ..message(
            "BucketAction",
            vec![
                bucket_id(),
                one_of("quota_assignment_action", 2, "QuotaAssignmentAction"),
                one_of("abandon_action", 3, "AbandonAction"),
            ],
        )
    };
    let response = DescriptorProto {
        nested_type: vec![bucket_action],
        ..message(
            "RateLimitQuotaResponse",
            vec![list(named("bucket_action", 1, Type::Message, &action))],
        )
    };
    let method = MethodDescriptorProto {
        client_streaming: Some(true),
        server_streaming: Some(true),
        ..method(
            "StreamRateLimitQuotas",
            &format!("{of}.RateLimitQuotaUsageReports"),
            &format!("{of}.RateLimitQuotaResponse"),
        )
    };
    FileDescriptorProto {
        message_type: vec![reports, bucket, response],
        service: vec![service("RateLimitQuotaService", method)],
        ..file(QUOTA, "envoy.service.rate_limit_quota.v3", &[DURATION, STRATEGY])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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

    use super::*;

    /// All messages, with their full names.
    fn messages() -> Vec<(String, DescriptorProto)> {
        let mut all = Vec::new();
        for file in described().file {
            for message in &file.message_type {
                add(&mut all, &format!(".{}", file.package.as_deref().unwrap()), message);
            }
        }
        all
    }

    fn add(all: &mut Vec<(String, DescriptorProto)>, within: &str, message: &DescriptorProto) {
        let name = format!("{within}.{}", message.name());
        message.nested_type.iter().for_each(|nested| add(all, &name, nested));
        all.push((name, message.clone()));
    }

    /// Reads a message by its description, and notes its fields.
    fn read(
        all: &[(String, DescriptorProto)],
        name: &str,
        mut bytes: &[u8],
        met: &mut BTreeSet<String>,
    ) {
        let (_, message) = all.iter().find(|(of, _)| of == name).unwrap();
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
                        read(all, field.type_name(), inner, met);
                    }
                }
                _ => assert_eq!(wire, WireType::Varint, "{}", field.name()),
            }
        }
    }

    #[test]
    fn messages_are_read_by_their_description() {
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
        let (all, mut met) = (messages(), BTreeSet::new());
        for (name, bytes) in [
            ("ratelimit.v3.RateLimitRequest", request.encode_to_vec()),
            ("ratelimit.v3.RateLimitResponse", response.encode_to_vec()),
            ("rate_limit_quota.v3.RateLimitQuotaUsageReports", reports.encode_to_vec()),
            ("rate_limit_quota.v3.RateLimitQuotaResponse", actions.encode_to_vec()),
        ] {
            read(&all, &format!(".envoy.service.{name}"), &bytes, &mut met);
        }
        let described = all.iter().flat_map(|(name, message)| {
            message.field.iter().map(move |field| format!("{name}.{}", field.name()))
        });
        assert_eq!(met, described.collect());
    }
}
