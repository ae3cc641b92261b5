#!/usr/bin/env bash
# Holds the pages for contributors to what exists:
# - every path that docs/architecture.md and CONTRIBUTING.md name is there, and every type and constant of the former;
# - docs/architecture.md has every module of src/lib.rs among its floors, every feature of Cargo.toml in its table, and
#   in the table of twins every function of a script beside a function in Rust, both of which exist;
# - CONTRIBUTING.md names every script and every step of .ci/run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/install_requirements.sh

need python3 python3

python3 - <<'PYTHON'
import pathlib, re, sys

MAX_LINES = 185
ENDINGS = "rs|lua|md|sh|toml|json|yml"
# A file or folder in backticks or in the picture of the floors; `a/b` alone could be two words.
PATH = re.compile(rf"(?:[\w.-]+/)*[\w-]+\.(?:{ENDINGS})\b|(?:[\w.-]+/)+(?![\w.-])")


def text(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def named(page):
    for code in re.findall(r"```text\n(.*?)```|`([^`\n]+)`", page, re.DOTALL):
        yield from PATH.findall(re.sub(r"https?://\S+", "", "".join(code)))


faults = []
# The code of the library. Paths of the pages may begin in each.
SOURCES = ("src", *sorted(map(str, pathlib.Path("crates").glob("*/src"))))
pages = {path: text(path) for path in ("docs/architecture.md", "CONTRIBUTING.md")}
for path, page in pages.items():
    for name in sorted(set(named(page))):
        if not any(pathlib.Path(root, name).exists() for root in (".", *SOURCES)):
            faults.append(f"{path}: there is no {name}")

page = pages["docs/architecture.md"]
code = "".join(text(file) for src in SOURCES for file in pathlib.Path(src).rglob("*.rs"))
words = set(re.findall(r"^[^/\n]*\b(?:struct|enum|trait|type|fn|mod|const|static) (\w+)|^ +([A-Z]\w*)\b", code, re.MULTILINE))
words = {word for pair in words for word in pair}
for name in sorted(set(re.findall(r"`((?:[A-Z]\w*)(?:::\w+)*)`", page))):
    if not words.issuperset(name.split("::")):
        faults.append(f"docs/architecture.md: there is no {name} in the code")
lines = page.count("\n")
if lines > MAX_LINES:
    faults.append(f"docs/architecture.md has {lines} lines, more than {MAX_LINES}")
floors = page.split("```text\n")[1].split("```")[0]
for module in re.findall(r"^(?:pub(?:\([^)]*\))? )?mod (\w+);", text("src/lib.rs") + text("crates/core/src/lib.rs"), re.MULTILINE):
    if not re.search(rf"\b{module}(\.rs|/)", floors):
        faults.append(f"docs/architecture.md: the module {module} is on no floor")
features = page.split("## Features")[1]
manifest = text("Cargo.toml").split("\n[features]\n")[1].split("\n[")[0]
for feature in re.findall(r"^([\w-]+) = ", manifest, re.MULTILINE):
    if feature != "default" and f"\n| `{feature}`" not in features:
        faults.append(f"docs/architecture.md: the feature {feature} is not in the table")

# Arithmetic that Rust has built in, and permits, which no Rust code repeats.
WITHOUT_TWIN = {"constants.lua", "time.lua", "permit_leases.lua", "versioned_value.lua"}
twins = pages["docs/architecture.md"].split("## Twins")[1].split("\n## ")[0]
rows = [[re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:3]] for line in re.findall(r"^\| `.*", twins, re.MULTILINE)]
for (script, *lua), (code, *rust) in rows:
    code = next((path for path in (f"{src}/{code}" for src in SOURCES) if pathlib.Path(path).exists()), code)
    sides = [(f"src/{script}", lua, r"function (?:\w+\.)?{0}\(|\b{0} = [^\n]*function\("), (code, rust, r"\bfn {0}\b")]
    if lua and len(lua) != len(rust):
        faults.append(f"docs/architecture.md: the twins of {script} and {code} are not as many")
    for path, names, definition in sides:
        if not pathlib.Path(path).exists():
            faults.append(f"docs/architecture.md: there is no {path}")
            continue
        for name in names:
            if not re.search(definition.replace("{0}", name), text(path)):
                faults.append(f"docs/architecture.md: {path} has no function {name}")
with_twins = {pathlib.Path("src", script) for (script, *_), _ in rows}
for path in pathlib.Path("src/redis/script").rglob("*.lua"):
    if path not in with_twins and path.name not in WITHOUT_TWIN:
        faults.append(f"docs/architecture.md: {path} is in no row of the twins")

page = pages["CONTRIBUTING.md"]
for script in sorted(pathlib.Path("scripts").glob("*.sh")):
    if str(script) not in page:
        faults.append(f"CONTRIBUTING.md: {script} is not named")
for step in " ".join(re.findall(r"^(?:steps|long)=\((.*)\)", text(".ci/run"), re.MULTILINE)).split():
    if f"`{step}`" not in page:
        faults.append(f"CONTRIBUTING.md: the step {step} is not named")

sys.exit("\n".join(faults) or None)
PYTHON
