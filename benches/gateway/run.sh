#!/usr/bin/env bash
# Measures what limits cost on the way through `tower-ratelimit gateway`, beside the same gateway where no rule applies,
# and beside nginx with `limit_req`; and what permits, an upstream by TLS, and viewers of the live page cost:
# `bash benches/gateway/run.sh [seconds] [rounds]`, of 2 for each case in each of 5 rounds. Prints a table: requests a
# second, the middle one of the rounds, and the processor time of a request in the proxy, of all rounds, which a busy
# machine changes less; each also over the case in the last column, the middle one of the rounds' ratios. The numbers
# compare with each other, not with those of other machines. PROGRAM names a program that is built already, and BEFORE an
# older one, which takes part where no rule applies.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/install_requirements.sh
need_rust
PATH=$PATH:/usr/sbin
need wrk wrk
need nginx nginx

need openssl openssl
need curl curl

seconds=${1:-2}
rounds=${2:-5}
if [ -z "${PROGRAM:-}" ]; then
    cargo build --quiet --release --locked -p tower-ratelimit-cli
    PROGRAM=${CARGO_TARGET_DIR:-target}/release/tower-ratelimit
fi

folder=$(mktemp -d)
declare -A processes
viewers=()
finish() {
    kill "${processes[@]}" "${viewers[@]}" 2>/dev/null || true
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
    processes[$1]=$!
}

# Starts a program as a gateway on this port, with this rule and these options.
start_gateway() {
    local program=$1 port=$2 rule=$3
    printf 'rules: [%s]\n' "$rule" >"$folder/$port.yaml"
    "$program" gateway "$folder/$port.yaml" --listen "127.0.0.1:$port" --drain 0s "${@:4}" 2>"$folder/$port.log" &
    processes[$port]=$!
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2>/dev/null
start_nginx upstream "
    ssl_certificate $folder/certificate.pem;
    ssl_certificate_key $folder/key.pem;
    server { listen 127.0.0.1:19100; listen 127.0.0.1:19101 ssl; location / { return 200 'hello\n'; } }"
start_nginx proxy '
    limit_req_status 429;
    limit_req_zone $binary_remote_addr zone=open:10m rate=1000000r/s;
    limit_req_zone $binary_remote_addr zone=closed:10m rate=1r/m;
    upstream hello { server 127.0.0.1:19100; keepalive 64; keepalive_requests 100000000; }
    upstream secret { server 127.0.0.1:19101; keepalive 64; keepalive_requests 100000000; }
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Forwarded-For $remote_addr;
    server { listen 127.0.0.1:19110; location / { proxy_pass http://hello; } }
    server { listen 127.0.0.1:19111; location / { limit_req zone=open burst=1000000 nodelay; proxy_pass http://hello; } }
    server { listen 127.0.0.1:19112; location / { limit_req zone=closed; proxy_pass http://hello; } }
    server { listen 127.0.0.1:19113; location / { proxy_pass https://secret; } }'
none='{name: none, match: {host: other.invalid}, quota: 1/day}'
many='{name: all, key: client_ip, quota: 1000000/second}'
plain=(--upstream http://127.0.0.1:19100 --http off --admin off)
start_gateway "$PROGRAM" 19120 "$none" "${plain[@]}"
start_gateway "$PROGRAM" 19121 "$many" "${plain[@]}"
start_gateway "$PROGRAM" 19122 '{name: all, key: client_ip, quota: 1/day}' "${plain[@]}"
start_gateway "$PROGRAM" 19123 '{name: all, key: client_ip, in_flight: 1000}' "${plain[@]}"
start_gateway "$PROGRAM" 19124 "$none" --upstream https://127.0.0.1:19101 --upstream-name localhost \
    --upstream-ca "$folder/certificate.pem" --http off --admin off
start_gateway "$PROGRAM" 19125 "$many" --upstream http://127.0.0.1:19100 --http 127.0.0.1:19126 --admin 127.0.0.1:19127
[ -z "${BEFORE:-}" ] || start_gateway "$BEFORE" 19128 "$none" "${plain[@]}"
sleep 1

# The name of each case, its process, its port, the viewers of the live page, and the case that it is compared with.
cases=(
    "the upstream itself|upstream|19100|0|19120"
    "gateway where no rule applies|19120|19120|0|19120"
    "gateway, allowed|19121|19121|0|19120"
    "gateway, denied|19122|19122|0|19120"
    "nginx without a limit|proxy|19110|0|19120"
    "nginx with \`limit_req\`, allowed|proxy|19111|0|19120"
    "nginx with \`limit_req\`, denied|proxy|19112|0|19120"
    "gateway, a permit of \`in_flight\`|19123|19123|0|19120"
    "gateway, upstream by TLS|19124|19124|0|19120"
    "nginx, upstream by TLS|proxy|19113|0|19110"
    "gateway, allowed, with metrics and the admin service|19125|19125|0|19125"
    "the same with one viewer of the live page|19125|19125|1|19125"
    "the same with 16 viewers|19125|19125|16|19125"
)
[ -z "${BEFORE:-}" ] || cases+=("the gateway before, where no rule applies|19128|19128|0|19120")

# The processor time of a process and its children, in hundredths of a second.
spent() {
    local id
    for id in "$1" $(cat "/proc/$1/task/$1/children"); do cat "/proc/$id/stat"; done | awk '{ sum += $14 + $15 } END { print sum }'
}

for case in "${cases[@]}"; do
    IFS='|' read -r name _ port _ <<<"$case"
    curl -s -o /dev/null "http://127.0.0.1:$port/"
    status=$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/")
    case $name in
        *denied) expected=429 ;;
        *) expected=200 ;;
    esac
    if [ "$status" != "$expected" ]; then
        echo "$name: status $status instead of $expected" >&2
        exit 1
    fi
done

for _ in $(seq "$rounds"); do
    for case in "${cases[@]}"; do
        IFS='|' read -r _ place port watching _ <<<"$case"
        for _ in $(seq "$watching"); do
            curl -sN -o /dev/null http://127.0.0.1:19127/v1/live &
            viewers+=($!)
        done
        before=$(spent "${processes[$place]}")
        wrk -t1 -c32 -d"${seconds}s" "http://127.0.0.1:$port/" >"$folder/wrk"
        after=$(spent "${processes[$place]}")
        awk -v time=$((after - before)) '/requests in/ { count = $1 } /Requests\/sec/ { print $2, count, time }' \
            "$folder/wrk" >>"$folder/$port-$watching.rates"
        for viewer in "${viewers[@]}"; do kill "$viewer" && wait "$viewer" || true; done
        viewers=()
    done
done

echo "| | requests a second | | processor time of a request | | over |"
echo "|---|---|---|---|---|---|"
middle() { sort -n | sed -n "$((rounds / 2 + 1))p"; }
# The ratio of each round: $1 over $2, by the column $3 as awk has it.
ratio() { paste -d' ' "$folder/$1.rates" "$folder/$2.rates" | awk "{ print $3 }" | middle; }
for case in "${cases[@]}"; do
    IFS='|' read -r name _ port watching base <<<"$case"
    rate=$(cut -d' ' -f1 "$folder/$port-$watching.rates" | middle)
    cost=$(awk '{ count += $2; time += $3 } END { print time * 10000 / count }' "$folder/$port-$watching.rates")
    printf '| %s | %.0f | %.3f | %.1f µs | %.3f | %s |\n' "$name" "$rate" \
        "$(ratio "$port-$watching" "$base-0" '$1 / $4')" "$cost" \
        "$(ratio "$port-$watching" "$base-0" '($3 / $2) / ($6 / $5)')" "$base"
done
