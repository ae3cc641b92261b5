#!/usr/bin/env bash
# Holds what a newcomer has to build: the packages of others in the graph of the README's first command, the features that nobody
# asked for, and the files that are published.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MOST=53

packages=$(cargo tree --locked --package quickstart --edges normal,build --prefix none --format '{p}' | sed 's/ (.*//' | grep -Ev '^(quickstart|tower-ratelimit)' | sort -u)
count=$(wc -l <<<"$packages")
echo "quickstart: $count packages, at most $MOST"
if [ "$count" -gt "$MOST" ]; then
    echo "$packages" >&2
    exit 1
fi

# testkit depends on the crate. Were that with default features, no test would run without them.
features=$(cargo tree --locked --package tower-ratelimit --no-default-features --edges normal,build,dev --prefix none \
    --format '{p} {f}' | sed -n 's/ *([*])$//; s/^tower-ratelimit v[^ ]* ([^)]*) *//p' | sort -u | tr -d '\n')
if [ -n "$features" ]; then
    echo "without default features the tests' crate has: $features" >&2
    exit 1
fi

# What is published: the source, the pages that it includes, and what a reader of the package looks for.
published='^(src/.*|docs/.*|proto/.*|README\.md|CHANGELOG\.md|LICENSE-(MIT|APACHE)|Cargo\.(toml|toml\.orig|lock)|\.cargo_vcs_info\.json)$'
for package in $(sed -n 's/^name = "\(tower-ratelimit[a-z-]*\)"$/\1/p' Cargo.toml crates/*/Cargo.toml); do
    strangers=$(cargo package --locked --list --allow-dirty --package "$package" | tr '\\' '/' | grep -Ev "$published" || true)
    if [ -n "$strangers" ]; then
        echo "the published package $package would have: $strangers" >&2
        exit 1
    fi
done
