#!/usr/bin/env bash
# This crate beside its peers, on this machine: `bash benches/peers/run.sh`, or only some parts, which its first lines
# name. It takes about ten minutes after the first build. Tables go to the terminal, and with JSON and pictures to
# target/peers/report; `--save` puts them into benches/peers/results, and the first rows into COMPARE.md.
#
# Parts: decision middleware instructions allocations memory stall growth http redis
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null
source scripts/install_requirements.sh

save=
if [ "${1:-}" = --save ]; then
    save=yes
    shift
fi

need_rust
need wrk wrk
need redis-server redis-server
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
    python3 - COMPARE.md "$target/report/summary.md" <<'PYTHON'
import pathlib, re, sys

page, summary = map(pathlib.Path, sys.argv[1:])
text = page.read_text(encoding="utf-8")
rows = "<!-- run -->\n" + summary.read_text(encoding="utf-8") + "<!-- /run -->"
found = re.compile("<!-- run -->.*?<!-- /run -->", re.DOTALL)
if not found.search(text):
    sys.exit(f"{page} has no place for a run")
page.write_text(found.sub(lambda _: rows, text), encoding="utf-8")
PYTHON
    # The last line stays the summary.
    tail -n 1 "$target/report/report.txt"
fi
