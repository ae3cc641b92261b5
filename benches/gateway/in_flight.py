"""Holds downloads, WebSockets and gRPC streams of one client at the gateway, two gateways, nginx and HAProxy.

`python3 benches/gateway/in_flight.py` prints two tables for its README.md: the requests that each lets run at the same
time, and the times of another client alone and beside them. Needs nginx, haproxy, redis-server (or VALKEY_SERVER), the
Python packages of gRPC in GRPCIO, and a program in PROGRAM that is built for release.
"""

import asyncio
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.environ["GRPCIO"])
import grpc  # noqa: E402

PROGRAM = os.environ["PROGRAM"]
REDIS = os.environ.get("VALKEY_SERVER", "redis-server")
MAX = {"downloads": 20, "sockets": 3, "streams": 50}
TRIED = {"downloads": 30, "sockets": 8, "streams": 80}
UPSTREAM, SERVER, GRPC, STORE = 19300, 19301, 19302, 19303
SECONDS = float(os.environ.get("SECONDS_OF_EACH", "3"))
ROUNDS = 5
STREAM = "/bench.Streams/Hold"
PROCESSES = []


def rules(lease=""):
    def rule(name, match):
        return f"  - {{name: {name}, match: {match}, key: bearer_token, in_flight: {{max: {MAX[name]}{lease}}}}}\n"

    return (
        "rules:\n"
        + rule("downloads", "{path: /download}")
        + rule("sockets", "{path: /socket}")
        + rule("streams", f"{{path: {STREAM}}}")
    )


HAPROXY_DEFAULTS = """
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout tunnel 1h
"""

# One port for HTTP/1.1 and HTTP/2, which answers fast requests itself.
UPSTREAM_CONF = f"""{HAPROXY_DEFAULTS}
frontend upstream
    bind 127.0.0.1:{UPSTREAM}
    http-request return status 200 content-type text/plain string hello if {{ path / }}
    use_backend streams if {{ path_beg /bench }}
    default_backend others
backend streams
    server one 127.0.0.1:{GRPC} proto h2
backend others
    server one 127.0.0.1:{SERVER}
"""


def haproxy_conf(port):
    def limit(at, name, path):
        return f"""
    http-request track-sc{at} hdr(authorization) table {name} if {{ path {path} }}
    http-request deny deny_status 429 if {{ path {path} }} {{ sc{at}_conn_cur({name}) gt {MAX[name]} }}"""

    tables = "".join(
        f"backend {name}\n    stick-table type string len 64 size 100k expire 1h store conn_cur\n" for name in MAX
    )
    return f"""{HAPROXY_DEFAULTS}
{tables}
frontend limited
    bind 127.0.0.1:{port}{limit(0, "downloads", "/download")}{limit(1, "sockets", "/socket")}{limit(2, "streams", STREAM)}
    use_backend by_http2 if {{ path_beg /bench }}
    default_backend by_http1
backend by_http2
    server one 127.0.0.1:{UPSTREAM} proto h2
backend by_http1
    server one 127.0.0.1:{UPSTREAM}
"""


def nginx_conf(port, folder):
    zones = "".join(f"limit_conn_zone $http_authorization zone={name}:10m;\n" for name in MAX)
    proxy = f"proxy_pass http://127.0.0.1:{UPSTREAM}; proxy_http_version 1.1; proxy_buffering off;"
    return f"""
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log /dev/null crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    {zones}
    limit_conn_status 429;
    server {{
        listen 127.0.0.1:{port};
        location / {{ {proxy} proxy_set_header Connection ""; }}
        location /download {{ limit_conn downloads {MAX["downloads"]}; {proxy} proxy_set_header Connection ""; }}
        location /socket {{
            limit_conn sockets {MAX["sockets"]}; {proxy}
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";
        }}
    }}
    server {{
        listen 127.0.0.1:{port + 1} http2;
        location / {{ limit_conn streams {MAX["streams"]}; grpc_pass grpc://127.0.0.1:{UPSTREAM}; grpc_read_timeout 1h; }}
    }}
}}
"""


async def start(*command):
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=open(f"{FOLDER}/log", "a")
    )
    PROCESSES.append(process)
    return process


async def until_open(port):
    for _ in range(500):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.02)
    raise RuntimeError(f"nothing listens on {port}: see {FOLDER}/log")


def write(name, text):
    path = f"{FOLDER}/{name}"
    with open(path, "w") as file:
        file.write(text)
    return path


async def serve(reader, writer):
    """Sends slow downloads, and echoes what comes through a WebSocket."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        await respond(reader, writer)
    writer.close()


async def respond(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    if b"/socket" in head.split(b"\r\n")[0]:
        # Proxies check the digest of the key.
        accept = b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
        upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n"
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + upgrade + accept + b"\r\n")
        while data := await reader.read(1024):
            writer.write(data)
            await writer.drain()
        return
    while b"?fast" in head.split(b"\r\n")[0]:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0.1)


class Streams(grpc.GenericRpcHandler):
    def service(self, details):
        async def hold(_, context):
            while True:
                await context.write(b"x" * 100)
                await asyncio.sleep(0.1)

        return grpc.unary_stream_rpc_method_handler(hold) if details.method == STREAM else None


async def request(port, path, more=""):
    """Sends a request of the greedy client. Returns the status, and the open connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer greedy\r\n{more}\r\n"
    writer.write(head.encode())
    line = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    return int(line.split()[1]), reader, writer


async def read_on(reader, writer, is_socket):
    with contextlib.suppress(OSError):
        while True:
            if is_socket:
                writer.write(b"\x81\x82\0\0\0\0hi")
                await asyncio.sleep(0.1)
            if not await reader.read(4096):
                return


class Held:
    """Requests of the greedy client that run."""

    def __init__(self):
        self.counts, self.others, self.tasks, self.closing = dict.fromkeys(MAX, 0), set(), [], []

    async def http(self, ports, name):
        path = {"downloads": "/download", "sockets": "/socket"}[name]
        key = "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        more = f"connection: upgrade\r\nupgrade: websocket\r\n{key}" if name == "sockets" else ""
        sent = [request(ports[at % len(ports)], path, more) for at in range(TRIED[name])]
        for status, reader, writer in await asyncio.gather(*sent):
            if status in (101, 200):
                self.counts[name] += 1
                self.closing.append(writer.close)
                self.tasks.append(asyncio.create_task(read_on(reader, writer, name == "sockets")))
            else:
                self.others.add(status)
                writer.close()

    async def streams(self, ports):
        """All streams of a port are in one connection."""
        channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}") for port in ports]

        async def stream(channel):
            call = channel.unary_stream(STREAM)(b"", metadata=(("authorization", "Bearer greedy"),), timeout=3600)
            try:
                await asyncio.wait_for(call.read(), 30)
            except grpc.aio.AioRpcError as error:
                self.others.add(f"gRPC {error.code().value[0]}")
                return
            self.counts["streams"] += 1

            async def rest():
                with contextlib.suppress(Exception):
                    async for _ in call:
                        pass

            self.tasks.append(asyncio.create_task(rest()))
            self.closing.append(call.cancel)

        await asyncio.gather(*(stream(channels[at % len(channels)]) for at in range(TRIED["streams"])))
        self.channels = channels

    async def end(self):
        for close in self.closing:
            close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for channel in self.channels:
            await channel.close()


async def hold(ports, grpc_ports):
    held = Held()
    # Connections whose request has ended stay open, and take no permit.
    for at in range(TRIED["downloads"]):
        status, _, writer = await request(ports[at % len(ports)], "/download?fast")
        assert status == 200, f"{status} after {at} kept connections"
        held.closing.append(writer.close)
    await held.http(ports, "downloads")
    await held.http(ports, "sockets")
    await held.streams(grpc_ports)
    return held


async def times_of_another(port):
    """The times of sequential requests of another client in a kept connection, in milliseconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begun = time.perf_counter()
        writer.write(b"GET / HTTP/1.1\r\nhost: test\r\nauthorization: Bearer other\r\n\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head.split(b"\r\n")[0], head
        await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        times.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(0.001)
    writer.close()
    return times


def p99(times):
    return statistics.quantiles(times, n=100)[98]


async def in_process_of_its_own(port):
    """Measures in another process: this one is busy with what it holds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "times", str(port), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return [float(word) for word in output.split()]


async def case(name, ports, grpc_ports):
    """Alternates, so that a busy machine slows both times alike."""
    alone, beside, counts, others, free = [], [], set(), set(), []
    for _ in range(ROUNDS):
        alone += await in_process_of_its_own(ports[0])
        held = await hold(ports, grpc_ports)
        beside += await in_process_of_its_own(ports[0])
        counts.add(tuple(held.counts.values()))
        others |= held.others
        await held.end()
        free.append(await seconds_until_free(ports[-1]))
    counts = " | ".join(", ".join(map(str, sorted(set(column)))) for column in zip(*counts))
    print(
        f"| {name} | {counts} | {', '.join(sorted(map(str, others)))} | {p99(alone):.2f} ms | {p99(beside):.2f} ms "
        f"| {p99(beside) / p99(alone):.2f} | {max(free) * 1000:.0f} ms |",
        flush=True,
    )


async def seconds_until_free(port):
    """The time until the greedy client has a permit again."""
    begun = time.perf_counter()
    while True:
        status, _, writer = await request(port, "/download")
        writer.close()
        if status == 200:
            return time.perf_counter() - begun
        await asyncio.sleep(0.01)


def gateway(port, file, *more):
    return start(
        PROGRAM, "gateway", file, "--upstream", f"http://127.0.0.1:{UPSTREAM}", "--listen", f"127.0.0.1:{port}",
        "--http", "off", "--admin", "off", "--drain", "0s", *more,
    )  # fmt: skip


async def killed_worker(nginx):
    """Kills the worker of an nginx that holds everything. Returns the seconds until its key has permits again."""
    held = await hold([19340], [19341])
    with open(f"/proc/{nginx.pid}/task/{nginx.pid}/children") as children:
        worker = int(children.read().split()[0])
    os.kill(worker, signal.SIGKILL)
    await until_open(19340)
    try:
        return f"after {await asyncio.wait_for(seconds_until_free(19340), 30):.1f} s"
    except asyncio.TimeoutError:
        return "not within 30 s"
    finally:
        await held.end()


async def main():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Streams(),))
    server.add_insecure_port(f"127.0.0.1:{GRPC}")
    await server.start()
    await asyncio.start_server(serve, "127.0.0.1", SERVER, backlog=1000)
    await start("haproxy", "-db", "-f", write("upstream.cfg", UPSTREAM_CONF))
    await start("haproxy", "-db", "-f", write("haproxy.cfg", haproxy_conf(19330)))
    nginx = await start("nginx", "-c", write("nginx.conf", nginx_conf(19340, FOLDER)), "-e", "/dev/null")
    await start(REDIS, "--port", str(STORE), "--save", "", "--appendonly", "no")
    alone, shared = write("rules.yaml", rules()), write("shared.yaml", rules(", lease: 5s"))
    await until_open(STORE)
    redis = ("--redis", f"redis://127.0.0.1:{STORE}", "--redis-deadline", "1s")
    await gateway(19310, alone)
    first = await gateway(19320, shared, *redis)
    await gateway(19321, shared, *redis)
    for port in (UPSTREAM, 19310, 19320, 19321, 19330, 19340, 19341):
        await until_open(port)
    print("| | downloads | WebSockets | gRPC streams | others | p99 of another, alone | beside | ratio | free again |")
    print("|---|---|---|---|---|---|---|---|---|")
    most = ", ".join(f"{MAX[name]} of {TRIED[name]} {name}" for name in MAX)
    print(f"| limit: {most} | | | | | | | | |")
    await case("gateway", [19310], [19310])
    await case("two gateways, Redis", [19320, 19321], [19320, 19321])
    await case("nginx", [19340], [19341])
    await case("HAProxy", [19330], [19330])
    held = await hold([19320], [19320])
    first.send_signal(signal.SIGKILL)
    free = await seconds_until_free(19321)
    print(f"\nkill -9 of a gateway with {held.counts}, lease 5 s: the other has permits after {free:.1f} s")
    await held.end()
    print(f"kill -9 of the worker of nginx: a permit {await killed_worker(nginx)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["times"]:
        print(*asyncio.run(times_of_another(int(sys.argv[2]))))
        sys.exit()
    with tempfile.TemporaryDirectory() as FOLDER:
        try:
            asyncio.run(main())
        finally:
            for process in PROCESSES:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
