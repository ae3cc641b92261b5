#!/usr/bin/env bash
# Counts what requests cost, in instructions as callgrind counts them: where times are noise, they differ by some hundredths
# at most, as keys fall together by the hash of the process. A router with a layer is compared with the same router with a
# layer that does nothing. Five rows have a budget, and fail above it; of these the least of three counts is compared, so that
# no run fails by chance. `bash scripts/check-instructions.sh all` prints the others, too, which fail only if nothing is counted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

all=${1:-}
need_rust
need valgrind valgrind libc6-dbg
need python3 python3

target=${CARGO_TARGET_DIR:-$PWD/target}/instructions
cargo build --locked --release --quiet --manifest-path benches/instructions/Cargo.toml --target-dir "$target"
binary=$target/release/tower-ratelimit-instructions

# What callgrind counted in a thousand requests of a kind; an error when it counted nothing.
count() {
    local total
    total=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='*::counted*' \
        "$binary" "$1" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p')
    if [ "${total:-0}" -eq 0 ]; then
        echo "callgrind counted nothing in the requests of the kind '$1'" >&2
        return 1
    fi
    echo "$total"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
checks=0

# compare <kind> <what it is> <what it is compared with, per thousand> [<budget>]
compare() {
    local total instructions budget=${4:-} verdict= least= try
    for try in 1 2 3; do
        total=$(count "$1") || return 1
        [ "${least:-$total}" -lt "$total" ] || least=$total
        instructions=$(((least - $3) / 1000))
        [ -n "$budget" ] && [ "$instructions" -gt "$budget" ] || break
    done
    if [ -z "$budget" ]; then
        printf '%-50s %6d\n' "$2" "$instructions"
        return
    fi
    if [ "$instructions" -gt "$budget" ]; then
        verdict='  OVER BUDGET'
    elif [ "$instructions" -lt $((budget * 8 / 10)) ]; then
        verdict='  far below its budget: lower it, or see what is no longer measured'
    fi
    printf '%-50s %6d of %6d%s\n' "$2" "$instructions" "$budget" "$verdict"
    [ "$instructions" -le "$budget" ]
}

# Compares in the background, as many at a time as there are processors. The arguments are those of `compare`.
check() {
    checks=$((checks + 1))
    (compare "$@" || touch "$scratch/failed") >"$scratch/$checks" 2>&1 &
    while [ "$(jobs -rp | wc -l)" -ge "$(getconf _NPROCESSORS_ONLN)" ]; do
        wait -n
    done
}

# Waits for the checks of the last build, and prints them in their order.
finish() {
    wait
    local at
    for at in $(seq "$checks"); do
        cat "$scratch/$at"
    done
    checks=0
}

# build <feature>: builds the program with a feature, once the checks of the last build are over.
build() {
    finish
    cargo build --locked --release --quiet --manifest-path benches/instructions/Cargo.toml --target-dir "$target" --features "$1"
}

noop=$(count no-op)
# A budget is a tenth above what the row cost when it was set. Whoever needs more says what for. Two of them have room for 64
# more: where a service is boxed, the compiler copies the future of any layer once or twice, as it inlines drop glue or not.
check decision 'a decision' 0 417
check plain 'a request without headers, over a no-op layer' "$noop" 750
check plain-stored 'a request by a limit in a store, likewise' "$noop" 1270
check default 'a request with the default headers, likewise' "$noop" 3050
check denied 'a denied request, likewise' "$noop" 1490
if [ -z "$all" ]; then
    finish
    [ ! -e "$scratch/failed" ]
    exit
fi
check decision-os-clock 'a decision by the clock of the operating system' 0
check decision-denied 'a decision, denied' 0
check decision-window 'a decision by a fixed window' 0
# In a slice of the list's second limit, whose weight rises: the sum of the limits, and the counts, are weighted.
check decision-varying 'a decision by a window that varies' 0
check decision-stored 'a decision in a store' 0
check decision-together 'a decision by three limits together' 0
check decision-sixteen 'a decision by sixteen limits together' 0
check decision-two 'a decision by two quotas of a key' 0
check log-denied 'a decision, denied by a log of 65,536' 0
check log-crowded 'a decision that another log makes room for' 0
check plain-priority 'a request of a class of requests, over none' "$(count plain)"
check plain-two 'a request by two quotas of a key, likewise' "$noop"
# One of them has long numbers, so that the texts are not cached.
check default-two 'the same with the default headers, likewise' "$noop"
check default-window 'a request with those of a window, likewise' "$noop"
check default-large 'a request with long numbers, likewise' "$noop"
# By a clock that is set.
check denied-minute 'a denied request with another of 60 waits, likewise' "$noop"
check denied-day 'a denied request with another of 1,000, likewise' "$noop"
heard=$(count denied-heard)
check denied-top 'a denied request of TopKeys, over one observed' "$heard"
# Built apart, since a feature changes what the compiler makes of the rest.
build several
noop=$(count no-op)
check plain-all 'a request by three limits, without headers' "$noop"
check default-all 'a request by three limits, with the default ones' "$noop"
build rules
noop=$(count no-op)
check rules 'a request through twenty rules, likewise' "$noop"
check rules-thousand 'a request through a thousand rules, likewise' "$noop"
check rules-matched 'a request that is matched against a thousand rules' "$noop"
check rules-together 'a request that three rules limit, likewise' "$noop"
check rules-in-flight 'a permit, over the same rule without in_flight' "$(count rules-holding)"
check spend-event 'an event of 269 bytes of a language model, read' 0
build leased,calendar
check decision-hot 'a decision about one hot key' 0
check decision-leased 'a decision about it from a lease' 0
check decision-month 'a decision by a month of a zone' 0
build client
bare=$(count client-bare)
check client 'an outgoing request that need not wait, over none' "$bare"
check client-reporting 'the same, answered with RateLimit fields' "$bare"
finish
[ ! -e "$scratch/failed" ]
