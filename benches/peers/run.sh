#!/usr/bin/env bash
# This crate beside its peers, on this machine: `bash benches/peers/run.sh`, or only some parts, which its first lines
# name. It takes under ten minutes after the first build. Tables go to the terminal, and with JSON and pictures to
# target/peers/report; `--save` puts them into benches/peers/results and the numbers into COMPARE.md.
#
# Parts: decision middleware instructions allocations memory stall growth http
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null
source scripts/need.sh

save=
if [ "${1:-}" = --save ]; then
    save=yes
    shift
fi

need_rust
need wrk wrk
need valgrind valgrind libc6-dbg

target=${CARGO_TARGET_DIR:-$PWD/target}/peers
# One of the peers declares a newer compiler than it needs.
cargo build --locked --release --quiet --ignore-rust-version --manifest-path benches/peers/Cargo.toml --target-dir "$target"
"$target/release/peers" run "$target/report" "$@"

if [ -n "$save" ]; then
    mkdir -p benches/peers/results
    cp "$target"/report/report.{txt,json} "$target"/report/*.svg benches/peers/results/
    need python3 python3
    python3 - COMPARE.md benches/peers/results/report.txt <<'PYTHON'
import pathlib, re, sys

page, report = map(pathlib.Path, sys.argv[1:])
text = page.read_text(encoding="utf-8")
run = "<!-- run -->\n```text\n" + report.read_text(encoding="utf-8").rstrip() + "\n```\n<!-- /run -->"
found = re.compile("<!-- run -->.*?<!-- /run -->", re.DOTALL)
if not found.search(text):
    sys.exit(f"{page} has no place for a run")
page.write_text(found.sub(lambda _: run, text), encoding="utf-8")
PYTHON
    # The last line stays the summary.
    tail -n 1 benches/peers/results/report.txt
fi
