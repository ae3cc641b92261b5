#!/usr/bin/env bash
# Prints the path of axe-core, one script that finds faults of accessibility, downloaded once to the target directory:
# `bash scripts/get-axe.sh`. It comes inside a Python package from PyPI, whose client the tests need anyway.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/need.sh

# It has axe-core 4.12.1.
version=0.1.8
checksum=fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8

if [ -n "${AXE:-}" ]; then
    echo "$AXE"
    exit
fi

mkdir -p "${CARGO_TARGET_DIR:-target}"
folder=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/axe/$version
script=$folder/axe_playwright_python/axe.min.js
if [ ! -f "$script" ]; then
    need python3 python3
    python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
    # Next to its place and then there at once, so that a download that was cut short is not taken for a whole one.
    mkdir -p "$(dirname "$folder")"
    fresh=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    echo "axe-playwright-python==$version --hash=sha256:$checksum" >"$fresh/requirements"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --dest "$fresh" --requirement "$fresh/requirements" >&2
    python3 -m zipfile -e "$fresh"/*.whl "$fresh" >&2
    rm -rf "$folder"
    mv "$fresh" "$folder"
fi
echo "$script"
