#!/usr/bin/env bash
# Holds the code of the crate and of those in `crates` that are published to the rules of structure:
# - no file has more than 900 lines, no function more than 80; doc comments and test modules are not counted;
# - every file begins with a `//!` line that says what it is;
# - the `mod` lines of lib.rs stand in the order in which a request passes them, and a module imports only from
#   modules that stand before it: so there are no circles, and the crate can be read from the top;
# - nor are there circles of files, of any length: an import counts as one from the file that its path names, and as one
#   from the file that defines the item, if the former only hands it on. Known ones stand in a list that only gets shorter;
# - no package has more lines of code, nor the library more inner public items, than its ceiling in scripts/size.toml;
# - no package uses an item of another one that is `doc(hidden)`, so that a patch release of one cannot break the other;
# - paths in packages outside of the workspace, which only the nightly workflow builds, name modules and items that exist;
# - each path in a comment, in `.ci`, `.config`, `.github` and `scripts` exists, a measured cost names its bench, and each
#   script in Lua the functions in Rust that do the same;
# - comments and pages keep to the rules of docs/language.md that can be counted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/install_requirements.sh

need python3 python3

python3 scripts/structure.py
python3 scripts/size.py --wings
python3 scripts/check_comment_references.py
python3 scripts/check_prose.py --check
