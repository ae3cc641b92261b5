"""A client in another language: grpcio, with Envoy's protocol from `xds-protos`.

    python3 client.py PORT call < requests   the responses, a line of JSON each
    python3 client.py PORT health NAME...    the statuses of the health service by name
    python3 client.py PORT describe          the service as reflected, and as `xds-protos` describes it
"""

import json
import sys

import grpc
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.unknown_fields import UnknownFieldSet
from google.protobuf.wrappers_pb2 import UInt32Value
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"

# The field `is_negative_hits` as bytes: the packages do not have it yet.
IS_NEGATIVE_HITS = bytes([4 << 3, 1])


def call(channel):
    stub = rls_pb2_grpc.RateLimitServiceStub(channel)
    for line in sys.stdin:
        request = json.loads(line)
        negative = [descriptor.pop("is_negative_hits") for descriptor in request["descriptors"]]
        request = ParseDict(request, rls_pb2.RateLimitRequest())
        for descriptor, is_negative in zip(request.descriptors, negative):
            if is_negative:
                descriptor.MergeFromString(IS_NEGATIVE_HITS)
        answer = stub.ShouldRateLimit(request, timeout=100)
        refuse_unknown(answer)
        answer = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        print(json.dumps(answer))


def refuse_unknown(message):
    unknown = [field.field_number for field in UnknownFieldSet(message)]
    if unknown:
        raise ValueError(f"{message.DESCRIPTOR.full_name} has fields {unknown}")
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in value if field.is_repeated else [value]:
                refuse_unknown(one)


def health(channel, names):
    stub = health_pb2_grpc.HealthStub(channel)
    reported = {}
    for name in names:
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=100)
            reported[name] = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        except grpc.RpcError as error:
            reported[name] = error.code().name
    print(json.dumps(reported))


def describe(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    reported = DescriptorPool(database).FindServiceByName(SERVICE)
    known = rls_pb2.DESCRIPTOR.services_by_name["RateLimitService"]
    shapes = {"services": sorted(database.get_services()), "reported": shape(reported), "known": shape(known)}
    # Only newer fields have it.
    add(UInt32Value.DESCRIPTOR, shapes["known"])
    print(json.dumps(shapes))


def shape(service):
    """The methods of a service, and all messages and enumerations that they use."""
    shapes = {}
    for method in service.methods:
        kinds = [method.input_type, method.output_type]
        streams = [method.client_streaming, method.server_streaming]
        shapes[f"{service.full_name}/{method.name}"] = [kind.full_name for kind in kinds] + streams
        for kind in kinds:
            add(kind, shapes)
    return shapes


def add(message, shapes):
    if message.full_name in shapes:
        return
    shapes[message.full_name] = ["map entry" if message.GetOptions().map_entry else "message"]
    for field in message.fields:
        other = field.message_type or field.enum_type
        oneof = field.containing_oneof
        shapes[field.full_name] = [
            field.number,
            field.type,
            field.is_repeated,
            field.has_presence,
            other and other.full_name,
            oneof and oneof.name,
        ]
        if field.message_type:
            add(field.message_type, shapes)
        if field.enum_type:
            for value in field.enum_type.values:
                shapes[f"{field.enum_type.full_name}.{value.name}"] = [value.number]


def main():
    port, command, *arguments = sys.argv[1:]
    # Without the machine's HTTP proxy.
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        {"call": call, "health": health, "describe": describe}[command](channel, *([arguments] if arguments else []))


main()
