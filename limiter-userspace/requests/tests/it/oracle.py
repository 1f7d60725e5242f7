"""Asks `limiter serve` with the messages of Envoy's public .proto files (PyPI: xds-protos, grpcio).

Arguments: the address, and docs/behind-a-proxy.md. Ends with a traceback where an answer is wrong.
"""

import random
import sys

import grpc
import yaml
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.ratelimit.v3 import rate_limit_pb2  # noqa: F401 (for Any)
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2  # noqa: F401 (for Any)
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
# Fields that are younger than xds-protos.
YOUNG = {"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.is_negative_hits"}
OK, OVER = rls_pb2.RateLimitResponse.OK, rls_pb2.RateLimitResponse.OVER_LIMIT


def request(*descriptors, hits=0):
    """Each descriptor is a list of keys and values."""
    asked = rls_pb2.RateLimitRequest(domain="auth", hits_addend=hits)
    for entries in descriptors:
        descriptor = asked.descriptors.add()
        for key, value in entries:
            descriptor.entries.add(key=key, value=value)
    return asked


def decisions(ask):
    """Random requests for users of three requests a minute, in less than the 20 s in which one more
    may pass, against a count."""
    used, seed = {}, random.Random(1)
    over = 0
    for _ in range(400):
        users = seed.sample([f"u{number}" for number in range(40)], seed.randint(1, 3))
        hits = seed.choice([0, 1, 1, 2])
        answer = ask(request(*([("user", user)] for user in users), hits=hits))
        passes = all(used.get(user, 0) + max(hits, 1) <= 3 for user in users)
        assert answer.overall_code == (OK if passes else OVER), (users, hits, used, answer)
        over += not passes
        for user, status in zip(users, answer.statuses, strict=True):
            if passes:
                used[user] = used.get(user, 0) + max(hits, 1)
                assert status.limit_remaining == 3 - used[user], (user, used, status)
            assert status.current_limit.requests_per_unit == 3
            assert status.current_limit.unit == rls_pb2.RateLimitResponse.RateLimit.MINUTE
    assert 50 < over < 350, over


def refusals(ask):
    for asked, code in [
        (rls_pb2.RateLimitRequest(), grpc.StatusCode.INVALID_ARGUMENT),
        (request(), grpc.StatusCode.INVALID_ARGUMENT),
        (request([]), grpc.StatusCode.INVALID_ARGUMENT),
        (request([("user", "x" * (1 << 20))]), grpc.StatusCode.OUT_OF_RANGE),
    ]:
        try:
            raise AssertionError(ask(asked))
        except grpc.RpcError as error:
            assert error.code() == code and error.details(), error


def same_fields(described, public):
    for field in described.fields:
        if field.full_name in YOUNG:
            continue
        other = public.fields_by_name[field.name]
        for what in ["number", "type", "is_repeated"]:
            assert getattr(field, what) == getattr(other, what), (field.full_name, what)
        if field.message_type is not None:
            assert field.message_type.full_name == other.message_type.full_name
            same_fields(field.message_type, other.message_type)
        if field.enum_type is not None:
            assert field.enum_type.full_name == other.enum_type.full_name
            theirs = {value.name: value.number for value in other.enum_type.values}
            for value in field.enum_type.values:
                assert theirs[value.name] == value.number, value.full_name


def reflection(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    assert SERVICE in database.get_services()
    pool = DescriptorPool(database)
    method = pool.FindServiceByName(SERVICE).methods_by_name["ShouldRateLimit"]
    same_fields(method.input_type, rls_pb2.RateLimitRequest.DESCRIPTOR)
    same_fields(method.output_type, rls_pb2.RateLimitResponse.DESCRIPTOR)

    def call(service, name, fields):
        method = pool.FindServiceByName(service).methods_by_name[name]
        of = GetMessageClass(method.output_type)
        ask = channel.unary_unary(
            f"/{service}/{name}", lambda message: message.SerializeToString(), of.FromString
        )
        return json_format.MessageToDict(ask(GetMessageClass(method.input_type)(**fields)))

    asked = {"domain": "auth", "descriptors": [{"entries": [{"key": "free", "value": "x"}]}]}
    answer = call(SERVICE, "ShouldRateLimit", asked)
    assert answer == {"overallCode": "OK", "statuses": [{"code": "OK", "limitRemaining": 2**32 - 1}]}
    assert call("grpc.health.v1.Health", "Check", {"service": SERVICE}) == {"status": "SERVING"}


def configuration(page):
    """The lines for Envoy have the names, types and values of its messages."""
    with open(page) as text:
        _, rest = text.read().split("### Envoy\n", 1)
    parts = yaml.safe_load(rest.split("```yaml\n", 1)[1].split("```", 1)[0])
    for name, message in [
        ("http_filters", manager_pb2.HttpFilter),
        ("clusters", cluster_pb2.Cluster),
        ("rate_limits", route_components_pb2.RateLimit),
    ]:
        for part in parts.pop(name):
            json_format.ParseDict(part, message())
    assert not parts, parts


def main():
    address, page = sys.argv[1:]
    with grpc.insecure_channel(address) as channel:
        ask = rls_pb2_grpc.RateLimitServiceStub(channel).ShouldRateLimit
        decisions(ask)
        refusals(ask)
        reflection(channel)
    configuration(page)


main()
