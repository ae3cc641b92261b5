"""Measures the quota service with Envoys, and under hostile and large loads.

`python3 benches/rlqs/run.py envoys|faults|latency|hostile|many` prints what its README.md has in its tables; `envoys` also draws
benches/rlqs/envoys.svg. Needs a release build in PROGRAM, envoy in ENVOY, redis-server (or VALKEY_SERVER), and the
Python packages of gRPC in GRPCIO. SECONDS_OF_RUN replaces the 120 seconds of a run of `envoys` or `faults`.
"""

import asyncio
import bisect
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM = os.environ["PROGRAM"]
FOLDER = pathlib.Path(tempfile.mkdtemp())
SECONDS = int(os.environ.get("SECONDS_OF_RUN", "120"))
GRPC, HTTP, ADMIN, STORE, ENVOYS = 19500, 19510, 19520, 19530, 19540
RATE = BURST = 600
RULES = f"""domain: shop
descriptors:
  - key: limit
    value: shared
    rate_limit: {{unit: second, requests_per_unit: {RATE}, algorithm: token_bucket, burst: {BURST}}}
  - key: limit
    rate_limit: {{unit: second, requests_per_unit: 1000}}
"""
PROCESSES = []


def start(*command):
    log = open(FOLDER / f"{len(PROCESSES)}.log", "w")
    process = subprocess.Popen(command, stdout=log, stderr=log)
    PROCESSES.append(process)
    return process


def stop():
    for process in PROCESSES:
        process.kill()
    for process in PROCESSES:
        process.wait()
    PROCESSES.clear()


def wait_for(port, path="/"):
    for _ in range(200):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1)
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on {port}")


def service(number=0, redis=False):
    rules = FOLDER / "rules.yaml"
    rules.write_text(RULES)
    options = ["--redis", f"redis://127.0.0.1:{STORE}"] if redis else []
    ports = [("--grpc", GRPC), ("--http", HTTP), ("--admin", ADMIN)]
    for name, port in ports:
        options += [name, f"127.0.0.1:{port + number}"]
    process = start(PROGRAM, "serve", str(rules), "--rlqs", *options)
    wait_for(HTTP + number, "/healthz")
    return process


def redis():
    start(os.environ.get("VALKEY_SERVER", "redis-server"), "--port", str(STORE), "--save", "", "--appendonly", "no")
    time.sleep(0.5)


def metric(name, instances=1):
    total = 0.0
    for number in range(instances):
        text = urllib.request.urlopen(f"http://127.0.0.1:{HTTP + number}/metrics").read().decode()
        total += sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))
    return total


FILTER = """
                  - name: envoy.filters.http.rate_limit_quota
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
                      domain: shop
                      rlqs_server: {envoy_grpc: {cluster_name: ratelimit}}
                      bucket_matchers:
                        on_no_match:
                          action:
                            name: shared
                            typed_config:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                              reporting_interval: 5s
                              bucket_id_builder: {bucket_id_builder: {limit: {string_value: shared}}}
                              no_assignment_behavior: {fallback_rate_limit: {blanket_rule: DENY_ALL}}"""


def envoy(port, grpc, has_filter=True):
    config = FOLDER / f"envoy-{port}.yaml"
    config.write_text(f"""
static_resources:
  listeners:
    - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress
                http_filters:{FILTER if has_filter else ""}
                  - name: envoy.filters.http.router
                    typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
                route_config:
                  virtual_hosts:
                    - {{name: shop, domains: ["*"], routes: [{{match: {{prefix: /}}, direct_response: {{status: 200}}}}]}}
  clusters:
    - name: ratelimit
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {{http2_protocol_options: {{}}}}
      load_assignment:
        cluster_name: ratelimit
        endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {grpc}}}}}}}}}]}}]
""")
    start(os.environ["ENVOY"], "--config-path", str(config), "--use-dynamic-base-id", "--concurrency", "1", "-l", "error")
    wait_for(port)


async def load(port, rate_at, passed, sent, begin):
    """Sends requests evenly by `rate_at` of the seconds since `begin`, and notes when each passed."""
    due = asyncio.Semaphore(0)

    async def worker():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            await due.acquire()
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if length:
                await reader.readexactly(int(length[1]))
            sent.append(time.monotonic() - begin)
            if b" 200 " in head[:20]:
                passed.append(time.monotonic() - begin)

    workers = [asyncio.ensure_future(worker()) for _ in range(32)]
    owed, last = 0.0, time.monotonic()
    while time.monotonic() - begin < SECONDS:
        await asyncio.sleep(0.002)
        now = time.monotonic()
        owed += rate_at(now - begin) * (now - last)
        last = now
        for _ in range(int(owed)):
            due.release()
        owed -= int(owed)
    await asyncio.sleep(0.5)
    for worker in workers:
        worker.cancel()


def above(passed):
    """The most requests in any interval above RATE times its length."""
    least, most = float("inf"), 0.0
    for number, at in enumerate(passed):
        least = min(least, number - RATE * at)
        most = max(most, number + 1 - RATE * at - least)
    return most


def each_second(times):
    return [bisect.bisect(times, at + 1) - bisect.bisect(times, at) for at in range(SECONDS)]


def envoys():
    series = {}
    for instances in (1, 2):
        redis()
        for number in range(instances):
            service(number, redis=instances > 1)
        for number in range(3):
            envoy(ENVOYS + number, GRPC + number % instances)
        half = SECONDS / 2
        rates = [lambda _: 900, lambda _: 300, lambda at: 600 if at >= half else 0]
        passed, sent = [[], [], []], [[], [], []]

        async def run():
            begin = time.monotonic()
            each = zip(range(3), rates, passed, sent)
            await asyncio.gather(*(load(ENVOYS + n, rate, ok, all, begin) for n, rate, ok, all in each))

        asyncio.run(run())
        together = sorted(sum(passed, []))
        settled = [at for at in together if at >= 20]
        third = each_second(passed[2])
        until = next((at for at in range(int(half), SECONDS) if third[at] >= 0.95 * RATE / 3), None)
        messages = metric("ratelimit_rlqs_reports_total", instances) + metric("ratelimit_rlqs_assignments_total", instances)
        offered = [sum(1 for at in times) for times in sent]
        print(f"{instances} instance(s): most above {RATE}*t {above(together):.0f} of {BURST}, "
              f"{len(settled) / (SECONDS - 20):.0f} a second after 20 s, offered {offered}, "
              f"third has its part after {until - half + 1 if until else 'never'} s, "
              f"{messages / sum(offered):.5f} messages a request", flush=True)
        series[instances] = [each_second(times) for times in passed]
        stop()
    pathlib.Path(__file__).with_name("envoys.svg").write_text(picture(series))


def faults():
    """Three Envoys and a client that lies, while instances stop, die and start, and Redis does."""
    import signal

    redis()
    store = PROCESSES[-1]
    instances = [service(number, redis=True) for number in range(2)]
    for number in range(3):
        envoy(ENVOYS + number, GRPC + number % 2)
    passed, sent = [[], [], []], [[], [], []]
    events = [
        (25, "an instance stands still for 8 s", lambda: instances[0].send_signal(signal.SIGSTOP)),
        (33, "", lambda: instances[0].send_signal(signal.SIGCONT)),
        (55, "an instance is killed, and a new one starts after 3 s", lambda: instances[1].kill()),
        (58, "", lambda: instances.append(service(1, redis=True))),
        (80, "Redis is killed, and starts empty after 6 s", store.kill),
        (86, "", redis),
    ]

    async def lie(begin):
        """Reports as many requests as ten Envoys, and sends none."""
        import grpc

        async with grpc.aio.insecure_channel(f"127.0.0.1:{GRPC}") as channel:
            call = stub(channel)()

            async def drain():
                async for _ in call:
                    pass

            reader = asyncio.ensure_future(drain())
            while time.monotonic() - begin < SECONDS:
                await call.write(field(1, b"shop") + usage(b"shared", 30_000))
                await asyncio.sleep(5)
            call.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def happen(begin):
        for at, _, action in events:
            await asyncio.sleep(max(0, at - (time.monotonic() - begin)))
            await asyncio.get_running_loop().run_in_executor(None, action)

    async def run():
        begin = time.monotonic()
        rates = [lambda _: 900, lambda _: 300, lambda _: 600]
        each = zip(range(3), rates, passed, sent)
        loads = (load(ENVOYS + n, rate, ok, all, begin) for n, rate, ok, all in each)
        await asyncio.gather(*loads, happen(begin), asyncio.wait([asyncio.ensure_future(lie(begin))]))

    asyncio.run(run())
    together = sorted(sum(passed, []))
    begins = [(0, "the start, with a client that lies")] + [(at, text) for at, text, _ in events if text] + [(SECONDS, "")]
    for (at, text), (end, _) in zip(begins, begins[1:]):
        part = [time for time in together if at <= time < end]
        print(f"from {at} s, {text}: most above {RATE}*t {above(part):.0f} of {BURST}, {len(part) / (end - at):.0f} a second")
    print(f"over all: most above {RATE}*t {above(together):.0f}")
    stop()


def picture(series):
    """The passed requests of each Envoy by the second, stacked, for one and two instances."""
    width, height, left, colours = 680, 150, 60, ("#0969da", "#8250df", "#1a7f37")
    step = (width - left - 16) / SECONDS
    parts = ["<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 400\" font-family=\"sans-serif\" font-size=\"12\">",
             "<rect width=\"680\" height=\"400\" fill=\"#fff\"/>"]
    for place, (instances, envoys) in enumerate(series.items()):
        base = 30 + height + place * (height + 40)
        scale = height / 900
        title = "one instance" if instances == 1 else "two instances with Redis"
        parts.append(f"<text x=\"{left}\" y=\"{base - height - 8}\">Requests a second of three Envoys, {title}; "
                     f"the third begins at {SECONDS // 2} s</text>")
        for value in (0, 300, 600, 900):
            y = base - value * scale
            parts.append(f"<path d=\"M{left} {y:.1f}H{width - 16}\" stroke=\"{'#cf222e' if value == RATE else '#d8dee4'}\"/>"
                         f"<text x=\"{left - 6}\" y=\"{y + 4:.1f}\" text-anchor=\"end\">{value}</text>")
        for second in range(SECONDS):
            y = base
            for colour, counts in zip(colours, envoys):
                tall = counts[second] * scale
                y -= tall
                parts.append(f"<rect x=\"{left + second * step:.1f}\" y=\"{y:.1f}\" width=\"{step:.2f}\" "
                             f"height=\"{tall:.1f}\" fill=\"{colour}\"/>")
    return "\n".join(parts) + "\n</svg>\n"


def latency():
    """Half of a limit's rate, so that the filter lets all pass."""
    service()
    envoy(ENVOYS, GRPC)
    envoy(ENVOYS + 1, GRPC, has_filter=False)

    async def times(port, number):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found = []
        for _ in range(number):
            await asyncio.sleep(0.004)
            began = time.perf_counter()
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            found.append((time.perf_counter() - began, b" 200 " in head[:20]))
            length = re.search(rb"content-length: (\d+)", head)
            if length:
                await reader.readexactly(int(length[1]))
        writer.close()
        return found

    async def run():
        await times(ENVOYS, 2_500)
        rounds = {0: [], 1: []}
        for _ in range(7):
            for place in rounds:
                found = await times(ENVOYS + place, 1_000)
                rounds[place].append(sorted(time for time, passed in found if passed))
        for place, name in enumerate(("with the filter", "without it")):
            middle = lambda share: sorted(times[int(len(times) * share)] for times in rounds[place])[3] * 1e6
            print(f"{name}: median {middle(0.5):.0f} us, p99 {middle(0.99):.0f} us")

    asyncio.run(run())
    stop()


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(tag, content):
    return bytes([tag << 3 | 2]) + varint(len(content)) + content


def usage(value, allowed):
    pair = field(1, b"limit") + field(2, value)
    return field(2, field(1, field(1, pair)) + bytes([3 << 3]) + varint(allowed))


def stub(channel):
    name = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"
    return channel.stream_stream(name, request_serializer=bytes, response_deserializer=bytes)


def memory(process):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


def processor(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")")[-1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def attack():
    """A hundred thousand ids on each of ten streams."""
    import grpc

    async def stream(channel, number):
        call = stub(channel)()

        async def drain():
            async for _ in call:
                pass

        reader = asyncio.ensure_future(drain())
        for part in range(100):
            ids = (b"%d-%d-%d" % (number, part, at) for at in range(1_000))
            await call.write(field(1, b"shop") + b"".join(usage(value, 1) for value in ids))
        await asyncio.sleep(2)
        call.cancel()
        await asyncio.gather(reader, return_exceptions=True)

    async with grpc.aio.insecure_channel(f"127.0.0.1:{GRPC}") as channel:
        await asyncio.gather(*(stream(channel, number) for number in range(10)))


async def hostile():
    """Another client's answers, while another process attacks."""
    import grpc

    process = service()
    await asyncio.sleep(8)
    before, most, times = memory(process), 0.0, []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{GRPC}") as channel:
        attacker = start(sys.executable, __file__, "attack")
        while attacker.poll() is None:
            call = stub(channel)()
            began = time.monotonic()
            await call.write(field(1, b"shop") + usage(b"shared", 5))
            await call.read()
            times.append(time.monotonic() - began)
            most = max(most, memory(process))
            call.cancel()
            await asyncio.sleep(0.02)
    times.sort()
    print(f"a million ids on ten streams: {most - before:.0f} MB more; another client is answered within "
          f"{times[len(times) // 2] * 1000:.0f} ms at the median and {times[-1] * 1000:.0f} ms at most, {len(times)} times")
    stop()


async def many_envoys():
    import grpc

    process = service()
    clients, buckets = 100, 1_000
    reports = [b"%d" % at for at in range(buckets)]
    message = field(1, b"shop") + b"".join(usage(value, 5) for value in reports)
    answered = 0

    async def client(number):
        nonlocal answered
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{GRPC}", options) as channel:
            call = stub(channel)()

            async def drain():
                nonlocal answered
                async for answer in call:
                    answered += len(answer)

            reader = asyncio.ensure_future(drain())
            await asyncio.sleep(number * 0.05)
            for _ in range(12):
                await call.write(message)
                await asyncio.sleep(5)
            call.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    running = asyncio.gather(*(client(number) for number in range(clients)))
    await asyncio.sleep(20)
    began, spent = time.monotonic(), processor(process)
    await asyncio.sleep(30)
    share = (processor(process) - spent) / (time.monotonic() - began)
    print(f"{clients} clients of {buckets} buckets each: {share:.2f} of a core, {memory(process):.0f} MB, "
          f"{answered / 1e6:.0f} MB of answers")
    await running
    stop()


if __name__ == "__main__":
    sys.path.insert(0, os.environ.get("GRPCIO", ""))
    commands = {
        "envoys": envoys,
        "faults": faults,
        "latency": latency,
        "hostile": lambda: asyncio.run(hostile()),
        "attack": lambda: asyncio.run(attack()),
        "many": lambda: asyncio.run(many_envoys()),
    }
    try:
        commands[sys.argv[1]]()
    finally:
        stop()
