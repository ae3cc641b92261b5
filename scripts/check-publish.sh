#!/usr/bin/env bash
# Checks that the version of the manifests can be released, up to the upload: `bash scripts/check-publish.sh`, or with
# `--no-verify`, which leaves the builds out. Cargo takes the packages and their order from the manifests, and builds each
# from the files that would be uploaded. Nothing is uploaded: the last line is the command that does it. The workflow of a
# release runs this for its tag.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

need_rust
need python3 python3

version=$(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
packages = [package for package in json.load(sys.stdin)["packages"] if package["publish"] != []]
versions = sorted({package["version"] for package in packages})
if len(versions) > 1:
    sys.exit("error: the packages have several versions: " + ", ".join(versions))
print(*versions)')

# A person may try this before everything is committed; CI has no such changes.
dirty=(--allow-dirty)
[ -z "${CI:-}" ] || dirty=()
cargo publish --dry-run --locked --workspace "${dirty[@]}" "$@" 2> >(grep -v '^warning: ignoring ' >&2)
bash scripts/check-semver.sh

open=()
[ -z "${GITHUB_REF_NAME:-}" ] || [ "$GITHUB_REF_NAME" = "v$version" ] || open+=("the tag $GITHUB_REF_NAME is not v$version")
grep -qE "^## \[$version\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md || open+=("CHANGELOG.md has no date for $version")
# Lines that are true until the first release, and end with it.
while IFS= read -r line; do
    open+=("to be removed: $line")
done < <(git grep --name-only '^ *<!-- until published -->' -- '*.md')
if [ ${#open[@]} -gt 0 ]; then
    printf 'open: %s\n' "${open[@]}" >&2
    exit 1
fi
echo "ready: git tag v$version && git push origin v$version && cargo publish --locked --workspace"
