#!/usr/bin/env bash
# Measures what limits cost a request on its way through `tower-ratelimit gateway`, beside the gateway, no rule applies and
# beside nginx with `limit_req`: `bash benches/gateway/run.sh [seconds]`, of 2 for each of 7 cases in 5 rounds. Prints a
# table of requests a second, the middle one of the rounds. The numbers compare with each other, not with other machines.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/need.sh
need_rust
need wrk wrk
PATH=$PATH:/usr/sbin need nginx nginx

seconds=${1:-2}
rounds=5
[ -n "${PROGRAM:-}" ] || cargo build --quiet --release --locked -p tower-ratelimit-cli
program=${CARGO_TARGET_DIR:-target}/release/tower-ratelimit

folder=$(mktemp -d)
processes=()
finish() {
    kill "${processes[@]}" 2>/dev/null || true
    wait
    rm -rf "$folder"
}
trap finish EXIT

# The upstream, and nginx as a gateway: one worker each, so that no case has more threads than another.
cat >"$folder/upstream.conf" <<CONF
worker_processes 1;
daemon off;
pid $folder/upstream.pid;
error_log stderr crit;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 100000000;
    server { listen 127.0.0.1:19100; location / { return 200 "hello\n"; } }
}
CONF
cat >"$folder/nginx.conf" <<CONF
worker_processes 1;
daemon off;
pid $folder/nginx.pid;
error_log /dev/null crit;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 100000000;
    limit_req_status 429;
    limit_req_zone \$binary_remote_addr zone=open:10m rate=1000000r/s;
    limit_req_zone \$binary_remote_addr zone=closed:10m rate=1r/m;
    upstream hello { server 127.0.0.1:19100; keepalive 64; keepalive_requests 100000000; }
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Forwarded-For \$remote_addr;
    server { listen 127.0.0.1:19110; location / { proxy_pass http://hello; } }
    server { listen 127.0.0.1:19111; location / { limit_req zone=open burst=1000000 nodelay; proxy_pass http://hello; } }
    server { listen 127.0.0.1:19112; location / { limit_req zone=closed; proxy_pass http://hello; } }
}
CONF
for name in upstream nginx; do
    PATH=$PATH:/usr/sbin nginx -c "$folder/$name.conf" -e /dev/null &
    processes+=($!)
done

gateway() {
    printf 'rules: [%s]\n' "$2" >"$folder/$1.yaml"
    "$program" gateway "$folder/$1.yaml" --upstream http://127.0.0.1:19100 --listen "127.0.0.1:$1" --drain 0s \
        2>"$folder/$1.log" &
    processes+=($!)
}
gateway 19120 '{name: none, match: {host: other.invalid}, quota: 1/day}'
gateway 19121 '{name: all, key: client_ip, quota: 1000000/second}'
gateway 19122 '{name: all, key: client_ip, quota: 1/day}'
sleep 1

cases=(
    "19100 the upstream itself"
    "19120 gateway, no rule applies"
    "19121 gateway, allowed"
    "19122 gateway, denied"
    "19110 nginx without a limit"
    "19111 nginx limit_req, allowed"
    "19112 nginx limit_req, denied"
)
for _ in $(seq "$rounds"); do
    for case in "${cases[@]}"; do
        port=${case%% *}
        wrk -t1 -c32 -d"${seconds}s" "http://127.0.0.1:$port/" | awk '/Requests\/sec/ { print $2 }' >>"$folder/$port.rates"
    done
done

echo "| | requests a second | of the gateway, no rule applies |"
echo "|---|---|---|"
middle() { sort -n "$folder/$1.rates" | sed -n "$((rounds / 2 + 1))p"; }
base=$(middle 19120)
for case in "${cases[@]}"; do
    awk -v name="${case#* }" -v rate="$(middle "${case%% *}")" -v base="$base" \
        'BEGIN { printf "| %s | %d | %.2f |\n", name, rate, rate / base }'
done
