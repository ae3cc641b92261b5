#!/usr/bin/env bash
# Compares the public API with that of the last tag: a change that breaks users needs the version for it.
#
# Not a step of .ci/run, since cargo-semver-checks takes minutes to build; a job of its own in the public workflow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/install_requirements.sh

if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
    echo "error: a shallow clone does not know its tags; \`git fetch --unshallow --tags\` first" >&2
    exit 1
fi
# A release is tagged `v` and its version. Its own commit is compared with the release before it.
if ! tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null); then
    echo "no tag yet: there is no release to compare with"
    exit 0
fi
need_rust
have_cargo_tool cargo-semver-checks
packages=(--package tower-ratelimit --package tower-ratelimit-client --package tower-ratelimit-postgres)
for package in core store shared layer client-ip budgets concurrency rules rulefile; do
    packages+=(--package "tower-ratelimit-$package")
done
cargo semver-checks "${packages[@]}" --all-features --baseline-rev "$tag"
