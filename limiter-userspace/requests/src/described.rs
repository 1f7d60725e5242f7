//! Envoy's rate limit service as server reflection describes it: the messages and fields that this
//! server reads and writes. Other fields of Envoy's `.proto` files are left out.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};

const RLS: &str = "envoy/service/ratelimit/v3/rls.proto";
const RATELIMIT: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
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
    FileDescriptorSet { file: vec![duration(), wrappers(), unit(), base(), ratelimit(), rls()] }
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
    let fields = vec![field("value", 1, Type::Uint64)];
    FileDescriptorProto {
        message_type: vec![message("UInt64Value", fields)],
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
    let method = MethodDescriptorProto {
        name: Some("ShouldRateLimit".to_owned()),
        input_type: Some(".envoy.service.ratelimit.v3.RateLimitRequest".to_owned()),
        output_type: Some(of.to_owned()),
        ..MethodDescriptorProto::default()
    };
    FileDescriptorProto {
        message_type: vec![request, response],
        service: vec![ServiceDescriptorProto {
            name: Some("RateLimitService".to_owned()),
            method: vec![method],
            options: None,
        }],
        ..file(RLS, "envoy.service.ratelimit.v3", &[RATELIMIT, BASE, DURATION])
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::HeaderValue;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
        Entry, RateLimitOverride,
    };
    use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
        DescriptorStatus, RateLimit,
    };
    use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
    use envoy_types::pb::google::protobuf::{Duration, UInt64Value};
    use prost::Message as _;
    use prost::encoding::{WireType, decode_key, decode_varint};

    use super::*;

    /// All messages, with their full names.
    fn messages() -> Vec<(String, DescriptorProto)> {
        let mut all = Vec::new();
        for file in described().file {
            for message in file.message_type {
                let name = format!(".{}.{}", file.package.as_deref().unwrap(), message.name());
                for nested in &message.nested_type {
                    all.push((format!("{name}.{}", nested.name()), nested.clone()));
                }
                all.push((name, message));
            }
        }
        all
    }

    /// Reads a message by its description, and counts its fields.
    fn read(all: &[(String, DescriptorProto)], name: &str, mut bytes: &[u8]) -> usize {
        let (_, message) = all.iter().find(|(of, _)| of == name).unwrap();
        let mut fields = 0;
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).unwrap();
            let field =
                message.field.iter().find(|field| i64::from(field.number()) == i64::from(number));
            let field = field.unwrap_or_else(|| panic!("{name} has no field {number}"));
            fields += 1;
            let value = decode_varint(&mut bytes).unwrap();
            match field.r#type() {
                Type::Message | Type::String | Type::Bytes => {
                    assert_eq!(wire, WireType::LengthDelimited, "{}", field.name());
                    let inner;
                    (inner, bytes) = bytes.split_at(usize::try_from(value).unwrap());
                    if field.r#type() == Type::Message {
                        fields += read(all, field.type_name(), inner);
                    }
                }
                _ => assert_eq!(wire, WireType::Varint, "{}", field.name()),
            }
        }
        fields
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
        let all = messages();
        let of = ".envoy.service.ratelimit.v3";
        let request = read(&all, &format!("{of}.RateLimitRequest"), &request.encode_to_vec());
        let response = read(&all, &format!("{of}.RateLimitResponse"), &response.encode_to_vec());
        let described: usize = all.iter().map(|(_, message)| message.field.len()).sum();
        assert_eq!(request + response, described, "each field was met once");
    }
}
