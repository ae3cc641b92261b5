#!/usr/bin/env bash
# This crate beside its peers, on this machine: `bash benches/peers/run.sh`, or only some parts, named behind it. It
# takes about eleven minutes after the first build. Tables go to the terminal, and with JSON and pictures to
# target/peers/report; `--save` puts them into benches/peers/results, the first rows into COMPARE.md, and the targets that
# were not met into benches/README.md. `--quick` measures each in one round, without ten million keys, in about four minutes: to see that
# everything can be measured, not to compare.
#
# Parts: decision middleware instructions allocations memory stall growth http redis
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null
source scripts/install_requirements.sh

save=
while :; do
    case "${1:-}" in
    --save) save=yes ;;
    --quick) export PEERS_QUICK=1 ;;
    *) break ;;
    esac
    shift
done

need_rust
need wrk wrk
# One of the peers needs Redis 7.2 or newer.
REDIS_SERVER=$(bash scripts/get-redis8.sh)
export REDIS_SERVER
need valgrind valgrind libc6-dbg

target=${CARGO_TARGET_DIR:-$PWD/target}/peers
# One of the peers declares a newer compiler than it needs.
cargo build --locked --release --quiet --ignore-rust-version --manifest-path benches/peers/Cargo.toml --target-dir "$target"
rm -rf "$target/report"
"$target/release/peers" run "$target/report" "$@"

if [ -n "$save" ]; then
    results=benches/peers/results
    rm -rf "$results"
    mkdir -p "$results"
    cp "$target"/report/{README.md,report.json} "$target"/report/*.svg "$results/"
    need python3 python3
    python3 benches/peers/put_into_page.py COMPARE.md run "$target/report/summary.md"
    python3 benches/peers/put_into_page.py benches/README.md unmet "$target/report/unmet.md"
    # The last line stays the summary.
    tail -n 1 "$target/report/report.txt"
fi
