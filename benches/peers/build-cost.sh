#!/usr/bin/env bash
# What it costs to build this crate and its peers: packages in the graph, and processor seconds of a clean debug build
# of them all: `bash benches/peers/build-cost.sh`, some ten minutes. `--count` only counts; `--save` also puts the table into
# COMPARE.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null
source scripts/install_requirements.sh

need_rust

root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# cost <name> <dependency line>
cost() {
    local package=$work/package packages seconds=
    mkdir -p "$package/src"
    : >"$package/src/lib.rs"
    printf '[package]\nname = "cost"\nedition = "2024"\n[workspace]\n[dependencies]\n%s\n' "$2" >"$package/Cargo.toml"
    # The versions that this crate is tested with, where it shares a dependency.
    cp Cargo.lock "$package/Cargo.lock"
    # Not the package that is made here, nor this crate: both come from a path, which cargo writes behind the version.
    packages=$(cd "$package" && cargo tree --quiet --edges normal,build --prefix none --format '{p}' |
        sed 's/ (\*)$//; s/ (proc-macro)$//' | sort -u | grep -vc ' (/')
    if [ -z "$count_only" ]; then
        TIMEFORMAT='%U %S'
        seconds=$({ time cargo build --quiet --ignore-rust-version --manifest-path "$package/Cargo.toml" \
            --target-dir "$work/target" 2>/dev/null; } 2>&1 | awk '{ printf "%.0f", $1 + $2 }')
        rm -rf "$work/target"
    fi
    printf '| %s | %s | %s |\n' "$1" "$packages" "$seconds"
}

count_only= save=
case "${1:-}" in
--count) count_only=yes ;;
--save) save=yes ;;
esac

ours() {
    cost "tower-ratelimit, $1" "tower-ratelimit = { path = \"$root\"${2:+, $2} }"
}

# Names of this crate's features, and of those that are on by default, so that no label is older than the manifest.
features=$(sed -n '/^\[features\]$/,/^\[dependencies\]$/s/^\([a-z-]*\) = \[.*/\1/p' Cargo.toml | grep -vx default)
default=$(sed -n 's/^default = \[\(.*\)\]$/\1/p' Cargo.toml | tr -d '"')

table() {
    printf '| what | packages | processor seconds |\n|---|---:|---:|\n'
    cost 'axum alone, default features' 'axum = "0.8"'
    ours 'no features' 'default-features = false'
    ours "default (\`${default//, /\`, \`}\`)" ''
    local feature
    for feature in $(sort <<<"$features"); do
        ours "only \`$feature\`" "default-features = false, features = [\"$feature\"]"
    done
    cost governor 'governor = "0.10.4"'
    cost tower_governor 'tower_governor = "0.8"'
    cost axum-governor 'axum-governor = "2.1"'
    cost tower-rate-limiter 'tower-rate-limiter = "=0.2.0-alpha.0"'
    cost axum_gcra 'axum_gcra = "0.1"'
    cost 'limitador, in memory' 'limitador = { version = "0.14", default-features = false }'
    cost tower-resilience-ratelimiter 'tower-resilience-ratelimiter = "0.14"'
    cost tower-rate-limit-redis 'tower-rate-limit-redis = "1.0"'
    cost tower-rate-limit-fred 'tower-rate-limit-fred = "2.1"'
    cost tower-redis-cell 'tower-redis-cell = "0.3"'
    cost 'axum-limit, `redis`' 'axum-limit = { version = "0.1", features = ["redis"] }'
    cost 'trypema, `redis-tokio`' 'trypema = { version = "2.2", features = ["redis-tokio"] }'
    cost 'throttled, `redis`' 'throttled = { version = "0.1", features = ["redis"] }'
}

table | tee "$work/table.md"
if [ -n "$save" ]; then
    need python3 python3
    python3 benches/peers/put_into_page.py COMPARE.md build "$work/table.md"
fi
