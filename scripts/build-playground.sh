#!/usr/bin/env bash
# Builds the playground: the crate as WebAssembly and the page around it, as one file that fetches nothing.
#
#     bash scripts/build-playground.sh           docs/playground/index.html, for a release
#     bash scripts/build-playground.sh page.html another file, for the tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

page=${1:-docs/playground/index.html}
target=wasm32-unknown-unknown
build=(cargo rustc --quiet --locked --release --package playground --lib --crate-type cdylib --target "$target")

need_rust
need python3 python3

# The library's settings stay as they are: these are for a small file.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=s CARGO_PROFILE_RELEASE_LTO=true CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
    CARGO_PROFILE_RELEASE_PANIC=abort CARGO_PROFILE_RELEASE_STRIP=true
# Messages of panics name files: whose machine built the page is nobody's business.
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo --remap-path-prefix=$PWD=."

has_wasm_std() {
    has_file "$(rustc --print sysroot)/lib/rustlib/$target/lib/libstd-*.rlib"
}

# is_enough <version>: whether a Rust of this version compiles the crate.
is_enough() {
    [ -n "$1" ] && [ "$(printf '%s\n' "$msrv" "$1" | sort -V | head -n 1)" = "$msrv" ]
}

# Debian builds its browsers with a compiler of their age, and has the sources of its standard library.
has_debian_rust() {
    [ -d /usr/lib/rustlib/src/rust/library/vendor ] && is_enough "$(/usr/bin/rustc --version 2>/dev/null | cut -d' ' -f2)"
}

offers_debian_rust() {
    has_command apt-cache || return
    apt_update >&2
    is_enough "$(apt-cache madison rustc-web 2>/dev/null | head -n 1 | cut -d'|' -f2 | tr -d ' ')"
}

msrv=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
if has_wasm_std; then
    "${build[@]}"
elif has_debian_rust || offers_debian_rust; then
    need_that has_debian_rust "rustc-web $msrv" rustc-web rust-web-src
    # The standard library comes as source alone, and cargo builds it by a switch that is not stable yet.
    linker=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/rust-lld
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker "${build[@]}" \
        -Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size
else
    rustup target add "$target" >&2 || {
        echo "error: the standard library for $target is needed and cannot be had" >&2
        exit 1
    }
    "${build[@]}"
fi

python3 - "${CARGO_TARGET_DIR:-target}/$target/release/playground.wasm" "$page" <<'PYTHON'
import base64, gzip, hashlib, pathlib, re, sys

wasm, page = map(pathlib.Path, sys.argv[1:])
parts = pathlib.Path("crates/playground/page")
text = lambda name: (parts / name).read_text(encoding="utf-8")
manifest = pathlib.Path("crates/playground/Cargo.toml").read_text(encoding="utf-8")
# The style and the pen are those of the service's live page.
shared = lambda name: pathlib.Path("crates/service/src/admin/page", name).read_text(encoding="utf-8")
style, script = shared("common.css") + text("page.css"), shared("pen.js") + text("page.js")
sha = lambda part: "'sha256-" + base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() + "'"
fill = {
    "csp": f"default-src 'none'; script-src {sha(script)} 'wasm-unsafe-eval'; style-src {sha(style)}; base-uri 'none'; form-action 'none'",
    "style": style,
    "script": script,
    "version": re.search(r'^version = "(.*)"', manifest, re.MULTILINE)[1],
    # No time and no name in the archive: the same code is the same page.
    "wasm": base64.b64encode(gzip.compress(wasm.read_bytes(), 9, mtime=0)).decode(),
}
html = re.sub(r"\{\{(\w+)\}\}", lambda found: fill[found[1]], text("index.html"))
page.parent.mkdir(parents=True, exist_ok=True)
page.write_text(html, encoding="utf-8", newline="\n")
print(f"{page}: {len(html.encode()) // 1024} kB, {wasm.stat().st_size // 1024} kB of WebAssembly", file=sys.stderr)
PYTHON
