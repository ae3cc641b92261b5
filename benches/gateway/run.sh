#!/usr/bin/env bash
# Measures what limits cost on the way through `tower-ratelimit gateway`, beside the same gateway where no rule applies,
# and beside nginx with `limit_req`: `bash benches/gateway/run.sh [seconds]`, of 2 for each of 7 cases in each of 5 rounds.
# Prints a table: requests a second, the middle one of the rounds, and the processor time of a request in the proxy, of
# all rounds, which a busy machine changes less. The numbers compare with each other, not with those of other machines.
# PROGRAM names a program that is built already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/install_requirements.sh
need_rust
PATH=$PATH:/usr/sbin
need wrk wrk
need nginx nginx

seconds=${1:-2}
rounds=5
if [ -z "${PROGRAM:-}" ]; then
    cargo build --quiet --release --locked -p tower-ratelimit-cli
    PROGRAM=${CARGO_TARGET_DIR:-target}/release/tower-ratelimit
fi

folder=$(mktemp -d)
processes=()
finish() {
    kill "${processes[@]}" 2>/dev/null || true
    wait
    rm -rf "$folder"
}
trap finish EXIT

# Starts an nginx of one worker, with these servers.
start_nginx() {
    cat >"$folder/$1.conf" <<CONF
worker_processes 1;
daemon off;
pid $folder/$1.pid;
error_log /dev/null crit;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 100000000;
    $2
}
CONF
    nginx -c "$folder/$1.conf" -e /dev/null &
    processes+=($!)
}

# Starts a gateway on this port, with this rule.
start_gateway() {
    printf 'rules: [%s]\n' "$2" >"$folder/$1.yaml"
    "$PROGRAM" gateway "$folder/$1.yaml" --upstream http://127.0.0.1:19100 --listen "127.0.0.1:$1" --drain 0s \
        --http off --admin off 2>"$folder/$1.log" &
    processes+=($!)
}

start_nginx upstream 'server { listen 127.0.0.1:19100; location / { return 200 "hello\n"; } }'
start_nginx proxy '
    limit_req_status 429;
    limit_req_zone $binary_remote_addr zone=open:10m rate=1000000r/s;
    limit_req_zone $binary_remote_addr zone=closed:10m rate=1r/m;
    upstream hello { server 127.0.0.1:19100; keepalive 64; keepalive_requests 100000000; }
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Forwarded-For $remote_addr;
    server { listen 127.0.0.1:19110; location / { proxy_pass http://hello; } }
    server { listen 127.0.0.1:19111; location / { limit_req zone=open burst=1000000 nodelay; proxy_pass http://hello; } }
    server { listen 127.0.0.1:19112; location / { limit_req zone=closed; proxy_pass http://hello; } }'
start_gateway 19120 '{name: none, match: {host: other.invalid}, quota: 1/day}'
start_gateway 19121 '{name: all, key: client_ip, quota: 1000000/second}'
start_gateway 19122 '{name: all, key: client_ip, quota: 1/day}'
sleep 1

# The port, the number of its process in `processes`, and the name.
cases=(
    "19100 0 the upstream itself"
    "19120 2 gateway where no rule applies"
    "19121 3 gateway, allowed"
    "19122 4 gateway, denied"
    "19110 1 nginx without a limit"
    "19111 1 nginx with limit_req, allowed"
    "19112 1 nginx with limit_req, denied"
)

# The processor time of a process and its children, in hundredths of a second.
spent() {
    local id
    for id in "$1" $(cat "/proc/$1/task/$1/children"); do cat "/proc/$id/stat"; done | awk '{ sum += $14 + $15 } END { print sum }'
}

for _ in $(seq "$rounds"); do
    for case in "${cases[@]}"; do
        read -r port place _ <<<"$case"
        process=${processes[$place]}
        before=$(spent "$process")
        wrk -t1 -c32 -d"${seconds}s" "http://127.0.0.1:$port/" >"$folder/wrk"
        after=$(spent "$process")
        awk -v time=$((after - before)) '/requests in/ { count = $1 } /Requests\/sec/ { print $2, count, time }' \
            "$folder/wrk" >>"$folder/$port.rates"
    done
done

echo "| | requests a second | | processor time of a request | |"
echo "|---|---|---|---|---|"
rate() { sort -n "$folder/$1.rates" | sed -n "$((rounds / 2 + 1))p" | cut -d' ' -f1; }
cost() { awk '{ count += $2; time += $3 } END { print time * 10000 / count }' "$folder/$1.rates"; }
for case in "${cases[@]}"; do
    read -r port _ name <<<"$case"
    awk -v name="$name" -v rate="$(rate "$port")" -v base="$(rate 19120)" -v cost="$(cost "$port")" \
        -v least="$(cost 19120)" \
        'BEGIN { printf "| %s | %d | %.2f | %.1f µs | %.2f |\n", name, rate, rate / base, cost, cost / least }'
done
