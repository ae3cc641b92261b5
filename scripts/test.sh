#!/usr/bin/env bash
# Runs all tests, from whatever directory it is called: `bash scripts/test.sh`; `bash scripts/test.sh all` runs every test
# without features, too, a thousand seeds of the simulation, ten times the random operations and more, and the tests of Redis also on Redis 8.
# On Debian it first installs what the tests need; elsewhere it names what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

need_rust

# The servers of the tests, clients, and a browser. They run on Linux only; there nothing is left out.
if [ "$(uname -s)" = Linux ]; then
    # Where nginx and HAProxy are, and not in every user's search path.
    PATH=$PATH:/usr/sbin
    need redis-server redis-server
    need openssl openssl
    need nginx nginx
    need haproxy haproxy
    has_command initdb || need_file '/usr/lib/postgresql/*/bin/initdb' postgresql
    need pgbouncer pgbouncer
    need apache2 apache2-bin
    need caddy caddy
    need nutcracker nutcracker
    need prometheus prometheus
    need promtool prometheus
    need systemd-analyze systemd
    need_that has_python_module jsonschema python3-jsonschema
    need_that has_python_module yaml python3-yaml
    need chromium chromium
    need chromedriver chromium-driver
    need_file '/usr/lib/*/faketime/libfaketimeMT.so.1' libfaketime
    VALKEY_SERVER=$(bash scripts/get-valkey.sh)
    ENVOY=$(bash scripts/get-envoy.sh)
    GRPCIO=$(bash scripts/get-grpcio.sh)
    LLM_CLIENTS=$(bash scripts/get-llm-clients.sh)
    AXE=$(bash scripts/get-axe.sh)
    PLAYGROUND_PAGE=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/playground.html
    bash scripts/build-playground.sh "$PLAYGROUND_PAGE"
    export VALKEY_SERVER ENVOY GRPCIO LLM_CLIENTS AXE PLAYGROUND_PAGE TEST_SERVERS=required
fi

all=${1:-}
[ -z "$all" ] || export SIMULATION_SEEDS=${SIMULATION_SEEDS:-1000} ORACLE_OPERATIONS=${ORACLE_OPERATIONS:-500000} \
    DIFFERENTIAL_OPERATIONS=${DIFFERENTIAL_OPERATIONS:-20000}

# retried: names the tests that passed at another try; .config/nextest.toml allows that to a few.
retried() {
    local report=${CARGO_TARGET_DIR:-target}/nextest/default/junit.xml
    [ ! -e "$report" ] || awk -F '"' '/<testcase /{name = $4 "::" $2} /<flakyFailure/{print name}' "$report" | sort -u
}

# Many tests wait for servers most of the time, so that four times as many run as there are processors.
if have_cargo_tool cargo-nextest; then
    run_tests() {
        local status=0
        cargo nextest run --locked --no-fail-fast --test-threads $((4 * $(getconf _NPROCESSORS_ONLN))) "$@" || status=$?
        retried >>"${RETRIED:-/dev/stderr}"
        return $status
    }
else
    echo "cargo-nextest cannot be had: using cargo test" >&2
    run_tests() { cargo test --locked --no-fail-fast --lib --bins --tests "$@"; }
fi

# The largest set comes last: its summary is what a reader finds at the end.
failed=()
cargo test --locked --no-fail-fast --doc --workspace --all-features || failed+=("doctests")
# Some twenty places have a branch for a missing feature. Their dependencies are another build.
[ -z "$all" ] || run_tests --no-default-features || failed+=("tests without features")
if [ -n "$all" ] && [ "$(uname -s)" = Linux ]; then
    # This Redis has no TLS.
    REDIS_SERVER=$(bash scripts/get-redis8.sh) run_tests --workspace --all-features --test redis -- \
        --skip tls --skip encrypted --skip certificate || failed+=("tests on Redis 8")
fi
run_tests --workspace --all-features || failed+=("tests with all features")

if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
