#!/usr/bin/env bash
# Holds what a request costs to its budget, in instructions as callgrind counts them: where times are noise, they differ by
# some hundredths at most, as keys fall together by the hash of the process. The least of three counts is compared, so
# that no run fails by chance. A router with a layer is compared with the same router with a layer that does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

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

# compare <kind> <what it is> <what it is compared with, per thousand> <budget>
compare() {
    local total instructions verdict= least= try
    for try in 1 2 3; do
        total=$(count "$1") || return 1
        [ "${least:-$total}" -lt "$total" ] || least=$total
        instructions=$(((least - $3) / 1000))
        [ "$instructions" -gt "$4" ] || break
    done
    if [ "$instructions" -gt "$4" ]; then
        verdict='  OVER BUDGET'
    elif [ "$instructions" -lt $(($4 * 9 / 10)) ]; then
        verdict='  FAR BELOW ITS BUDGET: lower it, or see what is no longer measured'
    fi
    printf '%-50s %6d of %6d%s\n' "$2" "$instructions" "$4" "$verdict"
    [ -z "$verdict" ]
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
# What it costs now, and two or three in a hundred for other compilers and other hashes. Whoever gains lowers them; whoever
# needs more says what for.
# Decisions: 6 to find out whether the clock is within the range of the table's instants, without which a clock that is
# decades off limits nothing; where windows or stores are, 15 to 90 for a second time, that of the wall. Rules: 30 in 2,300
# for readings that a server may have beside the usual one. An event of a language model: 450 for the names of more formats.
check decision 'a decision' 0 635
check decision-denied 'a decision, denied' 0 618
check decision-window 'a decision by a fixed window' 0 1490
# In a slice of the list's second limit, whose weight rises: the sum of the limits, and the counts, are weighted.
check decision-varying 'a decision by a window that varies' 0 3740
check decision-stored 'a decision in a store' 0 945
# 200 so that each limit finds its own share in the receipt of all.
check decision-together 'a decision by three limits together' 0 4390
# As much for each as of three.
check decision-sixteen 'a decision by sixteen limits together' 0 22500
check decision-two 'a decision by two quotas of a key' 0 1845
check log-denied 'a decision, denied by a log of 65,536' 0 10000
check log-crowded 'a decision that another log makes room for' 0 23600
# 64 of these and of all that follow come and go with how the compiler distributes the functions of this program, for
# which a new row is enough: tower moves the future once more or once less.
check plain 'a request without headers, over a no-op layer' "$noop" 1008
# 46 of them in the limiter, for the part of the bucket; the rest is the call of the closure, out of the way of
# layers without classes.
check plain-priority 'the same of a class of requests, over none' "$(count plain)" 137
# 35 so that each entry has its limit: a flood of one limit's keys resets no other limit's.
check plain-stored 'a request by a limit in a store, likewise' "$noop" 1285
check plain-two 'a request by two quotas of a key, likewise' "$noop" 2190
# One of them has long numbers, so that the texts are not cached.
check default-two 'the same with the default headers, likewise' "$noop" 6130
check default 'a request with the default headers, likewise' "$noop" 3010
check default-window 'a request with those of a window, likewise' "$noop" 3780
check default-large 'a request with long numbers, likewise' "$noop" 4170
check denied 'a denied request, likewise' "$noop" 1420
# By a clock that is set, which takes some 120 less to read.
check denied-minute 'the same with another of 60 waits than the last' "$noop" 1290
check denied-day 'the same with another of 1,000 waits' "$noop" 2570
heard=$(count denied-heard)
check denied-top 'the same counted by TopKeys, over one observed' "$heard" 806
# Built apart, since a feature changes what the compiler makes of the rest.
build several
noop=$(count no-op)
check plain-all 'a request by three limits, without headers' "$noop" 5280
check default-all 'a request by three limits, with the default ones' "$noop" 8080
build rules
noop=$(count no-op)
# 1,100 more than by the one limit in a store that it meets.
check rules 'a request through twenty rules, likewise' "$noop" 2360
check rules-thousand 'a request through a thousand rules, likewise' "$noop" 2360
check rules-matched 'a request that is matched against a thousand rules' "$noop" 155000
check rules-together 'a request that three rules limit, likewise' "$noop" 8540
# The key is hashed once. Of it 220 are the decision with its time, and 300 its body's and its future's.
check rules-in-flight 'a permit, over the same rule without in_flight' "$(count rules-holding)" 1330
check spend-event 'an event of 269 bytes of a language model, read' 0 6220
build leased,calendar
# The local one sets the floor: a clock, a hash, and an entry. The lease adds its lock, its demand, and the numbers of
# a status that the store made. 12 since a meter has its debt.
check decision-hot 'a decision about one hot key' 0 645
check decision-leased 'a decision about it from a lease' 0 1195
# Four more than a fixed window of the same build: the bounds of the month are kept, and a decision compares them with its time.
check decision-month 'a decision by a month of a zone' 0 1475
build client
bare=$(count client-bare)
# 520 so that a pacer is one type, whatever its limits are. 280 since a turn may cost several units, which this one does not.
check client 'an outgoing request that need not wait, over none' "$bare" 5960
# 280 more, since reports of a unit may be windows or buckets.
check client-reporting 'the same, answered with RateLimit fields' "$bare" 9450
finish
[ ! -e "$scratch/failed" ]
