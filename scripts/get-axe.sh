#!/usr/bin/env bash
# Prints the path of axe-core, one script that finds faults of accessibility, downloaded once to the target directory:
# `bash scripts/get-axe.sh`. The package has axe-core 4.12.1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/from-pypi.sh

[ -n "${AXE:-}" ] || AXE=$(from_pypi axe-playwright-python 0.1.8 \
    fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8 any axe_playwright_python/axe.min.js)
echo "$AXE"
