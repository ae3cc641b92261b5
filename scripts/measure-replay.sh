#!/usr/bin/env bash
# Measures the command `replay`: lines a second, and the most memory that it takes. A pipe brings the lines, so that no log
# lies on a disk.
#
#     bash scripts/measure-replay.sh                 a million lines and ten million, some seconds
#     bash scripts/measure-replay.sh 50000000        as many as are asked for
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/install_requirements.sh

need_rust
need python3 python3

cargo build --quiet --locked --release -p tower-ratelimit-cli --no-default-features --bin tower-ratelimit --example make_log
python3 - "${CARGO_TARGET_DIR:-target}/release" "${@:-1000000 10000000}" <<'PYTHON'
import json, os, subprocess, sys, time

programs, *counts = sys.argv[1:]
print("lines       format      lines/s  of one core's second  most memory")
for lines in (int(count) for text in counts for count in text.split()):
    for form in ("combined", "json"):
        log = subprocess.Popen([f"{programs}/examples/make_log", str(lines), form], stdout=subprocess.PIPE)
        # A process of its own: its memory and its time are not those of the one that writes the lines.
        began = time.monotonic()
        command = [f"{programs}/tower-ratelimit", "replay", "-", "--quota", "30/minute burst 15", "--json"]
        replay = subprocess.Popen(command, stdin=log.stdout, stdout=subprocess.PIPE)
        log.stdout.close()
        told = json.load(replay.stdout)
        _, _, used = os.wait4(replay.pid, 0)
        took = time.monotonic() - began
        assert told["attempts"] == lines, told
        log.wait()
        of_core = lines / (used.ru_utime + used.ru_stime)
        print(f"{lines:<11,} {form:<8} {lines / took:>10,.0f}  {of_core:>20,.0f}  {used.ru_maxrss / 1024:>8,.0f} MiB")
PYTHON
