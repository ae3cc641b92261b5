#!/usr/bin/env bash
# What it costs to build this crate and its peers: packages in the graph, and processor seconds of a clean debug build
# of them all: `bash benches/peers/build-cost.sh`, a few minutes. `--count` only counts.
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

count_only=
[ "${1:-}" != --count ] || count_only=yes

ours() {
    cost "tower-ratelimit, $1" "tower-ratelimit = { path = \"$root\"${2:+, $2} }"
}

printf '| what | packages | processor seconds |\n|---|---:|---:|\n'
cost 'axum alone, default features' 'axum = "0.8"'
ours 'no features' 'default-features = false'
ours 'default (`axum`, `governor`)' ''
for feature in axum governor metrics quanta redis redis-tls serde tokio tonic tracing; do
    ours "only \`$feature\`" "default-features = false, features = [\"$feature\"]"
done
cost governor 'governor = "0.10.4"'
cost tower_governor 'tower_governor = "0.8"'
cost axum-governor 'axum-governor = "2.1"'
cost tower-rate-limiter 'tower-rate-limiter = "=0.2.0-alpha.0"'
cost axum_gcra 'axum_gcra = "0.1"'
