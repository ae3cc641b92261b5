#!/usr/bin/env bash
# Tries what the image of deploy/Dockerfile has, without Docker: the program alone in an empty directory, as nobody and
# with nothing that it could write to: `bash scripts/try-image.sh`, or with a PROGRAM that is built already. On Debian it
# installs what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/install_requirements.sh
need curl curl
need_file /usr/share/zoneinfo/Europe/Berlin tzdata

program=${1:-}
if [ -z "$program" ]; then
    need_rust

    machine=$(uname -m)
    target=$machine-unknown-linux-musl
    if rustup target list --installed 2>/dev/null | grep -qx "$target" || rustup target add "$target" >&2; then
        # ring has parts in C.
        need musl-gcc musl-tools
    else
        echo "no compiler for $target can be had here: the program is linked with glibc in place of musl" >&2
        target=$machine-unknown-linux-gnu
        # Only this build: the variable of the target is not that of all steps.
        name=${target//-/_}
        export "CARGO_TARGET_${name^^}_RUSTFLAGS=-C target-feature=+crt-static"
    fi
    cargo build --locked --target "$target" --package tower-ratelimit-cli
    program=${CARGO_TARGET_DIR:-target}/$target/debug/tower-ratelimit
fi

# Only root may change the root directory.
[ "$(id -u)" = 0 ] || exec sudo -n bash scripts/try-image.sh "$program"

image=$(mktemp -d)
service=
trap '[ -z "$service" ] || kill "$service" 2>/dev/null || true; rm -rf "$image" "$image.log"' EXIT
cp "$program" "$image/tower-ratelimit"
mkdir -p "$image/rules" "$image/bin" "$image/usr/share"
cp -a /usr/share/zoneinfo "$image/usr/share/zoneinfo"
ln -s /tower-ratelimit "$image/bin/ratelimit"
cat >"$image/rules/shop.yaml" <<'RULES'
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 2}
RULES
mkdir "$image/gateway"
cat >"$image/gateway/month.yaml" <<'RULES'
rules: [{name: month, quota: 1000/month in Europe/Berlin}]
RULES
# As a container with --read-only: readable for all, writable for nobody.
chmod -R a=rX,a-w "$image"
chmod 0555 "$image/tower-ratelimit" "$image"

# The entry point, the environment and the command of the image; its own ports may be taken here.
http=127.0.0.1:$((20000 + $$ % 5000))
environment=(TOWER_RATELIMIT_HTTP="$http" TOWER_RATELIMIT_GRPC=127.0.0.1:0 TOWER_RATELIMIT_ADMIN=127.0.0.1:0)
inside=(env -i PATH="$PATH:/usr/sbin" "${environment[@]}" chroot --userspec=65532:65532 "$image" /tower-ratelimit)
"${inside[@]}" serve /rules --drain 0s >"$image.log" 2>&1 &
service=$!

for _ in $(seq 100); do
    "${inside[@]}" healthcheck && break
    kill -0 "$service" || { cat "$image.log" >&2; exit 1; }
    sleep 0.1
done >/dev/null
"${inside[@]}" healthcheck

question='{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "eve"}]}]}'
told=$(for _ in 1 2 3; do
    curl --silent --output /dev/null --write-out '%{http_code} ' --data "$question" "http://$http/json"
done)
[ "$told" = "200 200 429 " ] || { echo "error: answered $told" >&2; exit 1; }
curl --silent --fail "http://$http/metrics" | grep -q '^ratelimit_rules 1$'
[ "$(stat -c %u "/proc/$service")" = 65532 ] || { echo "error: the service does not run as nobody" >&2; exit 1; }

# Quotas of the calendar need the zones of the image.
"${inside[@]}" check /gateway >/dev/null

# The command of Envoy's reference service: it has no files here, and names their directory.
if reference=$("${inside[@]/%\/tower-ratelimit//bin/ratelimit}" 2>&1); then
    echo "error: /bin/ratelimit has no files and serves" >&2
    exit 1
fi
[[ $reference == *"/srv/runtime_data/current/config"* ]] || { echo "error: /bin/ratelimit printed $reference" >&2; exit 1; }

kill "$service"
wait "$service" || { echo "error: it ended with $?" >&2; exit 1; }
service=
echo "the image's program works alone: $told"
