#!/usr/bin/env bash
# Holds the pages for contributors to what exists:
# - every path that docs/architecture.md and CONTRIBUTING.md name is there, and every type and constant of the former;
# - docs/architecture.md has every module of src/lib.rs among its floors, and README.md every feature in its table;
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
manifest = text("Cargo.toml").split("\n[features]\n")[1].split("\n[")[0]
for feature in re.findall(r"^([\w-]+) = ", manifest, re.MULTILINE):
    if feature != "default" and f"\n| `{feature}`" not in text("README.md"):
        faults.append(f"README.md: the feature {feature} is not in the table")

page = pages["CONTRIBUTING.md"]
for script in sorted(pathlib.Path("scripts").glob("*.sh")):
    if str(script) not in page:
        faults.append(f"CONTRIBUTING.md: {script} is not named")
for step in " ".join(re.findall(r"^(?:steps|long)=\((.*)\)", text(".ci/run"), re.MULTILINE)).split():
    if f"`{step}`" not in page:
        faults.append(f"CONTRIBUTING.md: the step {step} is not named")

sys.exit("\n".join(faults) or None)
PYTHON
