#!/usr/bin/env bash
# Runs the fuzz targets one after another: `bash scripts/fuzz.sh [seconds] [target...]`, by default 600 seconds for each of
# them. Prints how many inputs each was given; a finding stops its target and fails the run.
# FUZZ_SANITIZER=address takes the address sanitizer in; the crate itself has no unsafe code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

seconds=${1:-600}
shift || true

need_rust
need c++ g++
rustup toolchain list 2>/dev/null | grep -q '^nightly' || {
    echo "error: fuzzing needs the nightly toolchain: rustup toolchain install nightly --profile minimal" >&2
    exit 1
}
have_cargo_tool cargo-fuzz || { echo "error: cargo-fuzz cannot be had" >&2; exit 1; }

sanitizer=${FUZZ_SANITIZER:-none}
if [ $# -eq 0 ]; then
    mapfile -t targets < <(cargo +nightly fuzz list)
else
    targets=("$@")
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
for target in "${targets[@]}"; do
    status=0
    # The artifacts stay in fuzz/target, whatever directory other builds use.
    env -u CARGO_TARGET_DIR cargo +nightly fuzz run --sanitizer "$sanitizer" "$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=5 -dict=fuzz/tokens.dict -print_final_stats=1 >"$log" 2>&1 || status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ $status -eq 0 ]; then
        echo "$target: ${executions:-no} executions, nothing found"
    else
        echo "$target: FAILED after ${executions:-no} executions"
        tail -n 40 "$log" >&2
        failed+=("$target")
    fi
done

if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
