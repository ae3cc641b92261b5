#!/usr/bin/env bash
# Explores the schedules of the threads of the local tables and of the clock with loom: `bash scripts/check-loom.sh`, or only
# the tests whose name contains an argument. `LOOM_MAX_PREEMPTIONS=4` searches deeper than each test does by itself, and takes longer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

need_rust

# A process for each test: in one, threads wait for each other to map the stacks of coroutines, and take twice as long.
run=(test) more=(--show-output)
if have_cargo_tool cargo-nextest; then
    run=(nextest run --no-tests fail --test-threads "$(getconf _NPROCESSORS_ONLN)")
    more=()
fi

# The flag builds every dependency anew, so it gets a directory of its own, next to the usual one. Only few are needed
# (Cargo.toml), and of those only what the search runs through is worth optimising.
searched=$(RUSTFLAGS="--cfg check_model" cargo "${run[@]}" --locked --release --package tower-ratelimit-core --lib --no-default-features \
    --target-dir "${CARGO_TARGET_DIR:-target}/loom" \
    --config 'profile.release.package."*".opt-level = 0' \
    --config 'profile.release.package.loom.opt-level = 3' \
    --config 'profile.release.package.generator.opt-level = 3' \
    -- "${more[@]}" "local::table::model::${1:-}" "local::store::shard::model::${1:-}" "clock::anchor::model::${1:-}" 2>&1 | tee >(cat >&2))
if grep -q '^test result: ok. 0 passed' <<<"$searched"; then
    echo "no test of the model has '${1:-}' in its name" >&2
    exit 1
fi
