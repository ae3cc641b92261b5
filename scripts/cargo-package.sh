#!/usr/bin/env bash
# Packages everything that is published, as for the registry. With the argument `install` it also builds the command
# `tower-ratelimit` from these packages alone, outside of this repository, and runs it: a file that a package lacks, or an
# item of another package that is not published, fails here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

need_rust
need python3 python3

target=${CARGO_TARGET_DIR:-$PWD/target}
mapfile -t packages < <(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] != []:
        print(package["name"], package["version"])')

chosen=()
for package in "${packages[@]}"; do
    rm -f "$target/package/${package// /-}.crate"
    chosen+=(--package "${package% *}")
done
# A person may have changes that are not committed yet; CI has none.
[ -n "${CI:-}" ] || chosen+=(--allow-dirty)
cargo package --locked --quiet --no-verify "${chosen[@]}" 2> >(grep -v '^warning: ignoring ' >&2)
for package in "${packages[@]}"; do
    [ -s "$target/package/${package// /-}.crate" ] || { echo "error: no package of $package" >&2; exit 1; }
done
echo "packaged: ${packages[*]}"

[ "${1:-}" = install ] || exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
patches=()
for package in "${packages[@]}"; do
    tar -xzf "$target/package/${package// /-}.crate" -C "$folder"
    patches+=(--config "patch.crates-io.${package% *}.path = \"$folder/${package// /-}\"")
done
# The versions that everything else was tested with. Those of this workspace come from the folder.
cp Cargo.lock "$folder"/tower-ratelimit-cli-*/
# In the folder, so that no setting of this repository applies.
(cd "$folder" && cargo install --quiet --debug --path "$folder"/tower-ratelimit-cli-* --root "$folder/root" \
    --target-dir "$target/installed" "${patches[@]}")
version=$("$folder/root/bin/tower-ratelimit" --version)
echo "installed from packages: $version"
