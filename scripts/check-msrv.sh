#!/usr/bin/env bash
# Holds the dependencies of the libraries to the `rust-version` in Cargo.toml: none that a user has to build may require a
# newer compiler, on any platform and with any feature. Where that toolchain is installed, it also checks the libraries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/install_requirements.sh

need_rust
need python3 python3

msrv=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
[ -n "$msrv" ] || { echo "error: no rust-version in Cargo.toml" >&2; exit 1; }

python3 - "$msrv" <<'PYTHON'
import json, subprocess, sys


def version(text):
    """(1, 88, 0) for "1.88", so that "1.88" and "1.88.0" are the same."""
    numbers = [int(part) for part in text.split("-")[0].split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))


msrv = sys.argv[1]
command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1"]
metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}

roots = [id for id, package in packages.items() if package["name"] in ("tower-ratelimit", "tower-ratelimit-client", "tower-ratelimit-postgres")]
seen, queue = set(roots), list(roots)
while queue:
    for dependency in nodes[queue.pop()]["deps"]:
        for_users = any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
        if for_users and dependency["pkg"] not in seen:
            seen.add(dependency["pkg"])
            queue.append(dependency["pkg"])

users = [packages[id] for id in sorted(seen - set(roots))]
too_new = [p for p in users if p["rust_version"] and version(p["rust_version"]) > version(msrv)]
silent = sum(1 for p in users if not p["rust_version"])
for package in too_new:
    name = f"{package['name']} {package['version']}"
    print(f"error: {name} needs Rust {package['rust_version']}, we promise {msrv}", file=sys.stderr)
if too_new:
    sys.exit(1)
print(f"{len(users)} dependencies are content with Rust {msrv} ({silent} of them declare nothing)")
PYTHON

toolchain=$(rustup toolchain list 2>/dev/null | sed -n "s/^\(${msrv//./\\.}\(\.[0-9]*\)\{0,1\}-[^ ]*\).*/\1/p" | head -n 1 || true)
if [ -n "$toolchain" ]; then
    libraries=(--package tower-ratelimit --package tower-ratelimit-client --package tower-ratelimit-postgres)
    cargo "+$toolchain" check --locked "${libraries[@]}" --all-features
    cargo "+$toolchain" check --locked "${libraries[@]}" --no-default-features
else
    echo "Rust $msrv is not installed: the libraries were not checked with it"
fi
