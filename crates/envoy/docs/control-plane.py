"""A control plane for a first try: sends the limits of a file whenever they change. envoy.md has the steps."""

import json, pathlib, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

pool = descriptor_pool.DescriptorPool()
for file in descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(sys.argv[1]).read_bytes()).file:
    pool.Add(file)
message = lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
Config = message("ratelimit.config.ratelimit.v3.RateLimitConfig")
Request = message("envoy.service.discovery.v3.DiscoveryRequest")
Response = message("envoy.service.discovery.v3.DiscoveryResponse")
TYPE = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"
limits = pathlib.Path(sys.argv[2])

def stream(requests, context):
    def replies():
        for request in requests:
            if request.response_nonce:
                print(request.response_nonce, request.error_detail.message or "is in force", flush=True)
    threading.Thread(target=replies, daemon=True).start()
    sent = None
    while context.is_active():
        text = limits.read_text()
        if text != sent:
            version = str(limits.stat().st_mtime_ns)
            response = Response(version_info=version, nonce=version, type_url=TYPE)
            for config in json.loads(text):
                value = json_format.ParseDict(config, Config()).SerializeToString(deterministic=True)
                response.resources.add(type_url=TYPE, value=value)
            sent = text
            yield response
        time.sleep(0.2)

handler = grpc.stream_stream_rpc_method_handler(stream, Request.FromString, Response.SerializeToString)
server = grpc.server(ThreadPoolExecutor(8))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(
    "envoy.service.discovery.v3.AggregatedDiscoveryService", {"StreamAggregatedResources": handler})])
server.add_insecure_port("127.0.0.1:18000")
server.start()
server.wait_for_termination()
