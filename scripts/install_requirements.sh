# shellcheck shell=bash
# What the other scripts need of the machine; they source this file. Nothing here asks questions.

apt_updated=

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo -n "$@"
    else
        echo "neither root nor sudo: cannot run \`$*\`" >&2
        return 1
    fi
}

apt_update() {
    # An unreachable extra repository must not stop us: whether the package can be had is what counts.
    [ -n "$apt_updated" ] || as_root apt-get update -qq || true
    apt_updated=yes
}

apt_install() {
    apt_update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"
}

has_command() {
    command -v "$1" >/dev/null 2>&1
}

has_file() {
    compgen -G "$1" >/dev/null
}

has_python_module() {
    python3 -c "import $1" 2>/dev/null
}

# need <command> <debian package>...: makes sure that the command is there, or says what to install and stops.
need() {
    need_that has_command "$@"
}

# need_file <pattern> <debian package>...: the same for a file, such as a library.
need_file() {
    need_that has_file "$@"
}

# need_that <has_...> <what> <debian package>...
need_that() {
    local has=$1 what=$2
    shift 2
    "$has" "$what" && return
    if [ -e /etc/debian_version ]; then
        echo "\`$what\` is missing: installing $*" >&2
        apt_install "$@" >&2 || true
        hash -r
        "$has" "$what" && return
    fi
    echo "error: \`$what\` is needed and missing; please install it (on Debian: apt-get install $*)" >&2
    exit 1
}

# need_rust: makes sure that there is a Rust toolchain, or says what to install and stops. Debian's own `rustc` is older
# than what we need, but from Debian 13 on there is a package of rustup.
need_rust() {
    # rustup's own installer puts it here; shells that were open before don't know.
    command -v cargo >/dev/null 2>&1 || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    # Not `command -v`: rustup without a toolchain has a `cargo` that only says so.
    cargo --version >/dev/null 2>&1 || install_rust >&2
    hash -r
    cargo --version >/dev/null 2>&1 || {
        echo "error: \`cargo\` is needed and missing; please install Rust from https://rustup.rs" >&2
        exit 1
    }
    # rustc links through `cc` on Linux; elsewhere the toolchain's own installer sees to it.
    case $(uname -s) in
        # And the memory allocator of the command is C.
        Linux) need cc gcc libc6-dev && need make make ;;
    esac
}

install_rust() {
    if ! command -v rustup >/dev/null 2>&1 && [ -e /etc/debian_version ]; then
        echo "\`cargo\` is missing: installing rustup"
        apt_install ca-certificates rustup || return 0
        hash -r
    fi
    # A toolchain that is there and fails is the user's to repair.
    if command -v rustup >/dev/null 2>&1 && ! rustup default >/dev/null 2>&1; then
        rustup default stable || return 0
    fi
}

# have_cargo_tool <crate>: makes sure that the cargo subcommand is there, builds it if not; fails if it cannot be had.
# The build has its own target directory and flags, so that it leaves the project's artifacts alone,
# and it is a debug build: that is ready sooner, and these tools only start other programs.
have_cargo_tool() {
    cargo "${1#cargo-}" --version >/dev/null 2>&1 && return
    echo "\`$1\` is missing: building it from crates.io, which takes a few minutes" >&2
    env -u CARGO_TARGET_DIR -u RUSTFLAGS cargo install --quiet --locked --debug "$1" >&2
}
