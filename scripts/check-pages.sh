#!/usr/bin/env bash
# Holds the pages for contributors to what exists:
# - every path of CONTRIBUTING.md is there; each of docs/architecture.md is one file, which has the functions beside it,
#   and each of its types exists;
# - the picture of the packages is that of their manifests, and the page stays short;
# - src/lib.rs has every feature in its table;
# - CONTRIBUTING.md names every script and every step of .ci/run;
# - links of pages lead to files and headings that exist, on GitHub's pages of this repository, too;
# - no page but the reference of rule files has more than 3,000 words; README.md and each entry of CHANGELOG.md are no
#   longer than a reader's patience.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/install_requirements.sh

need python3 python3

python3 scripts/draw_crates.py --check
python3 - <<'PYTHON'
import pathlib, re, subprocess, sys

MAX_WORDS, MAX_TERMS = 1500, 40
ENDINGS = "rs|lua|md|sh|toml|json|yml|py"
# A file or folder in backticks; `a/b` alone could be two words.
PATH = re.compile(rf"(?:[\w.-]+/)*[\w-]+\.(?:{ENDINGS})\b|(?:[\w.-]+/)+(?![\w.-])")


def text(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def named(page):
    for code in re.findall(r"`([^`\n]+)`", page):
        yield from PATH.findall(re.sub(r"https?://\S+", "", code))


faults = []
page = text("CONTRIBUTING.md")
for name in sorted(set(named(page))):
    if not any(pathlib.Path(root, name).exists() for root in (".", *pathlib.Path("crates").glob("*/src"))):
        faults.append(f"CONTRIBUTING.md: there is no {name}")
for script in sorted(pathlib.Path("scripts").glob("*.sh")):
    if str(script) not in page:
        faults.append(f"CONTRIBUTING.md: {script} is not named")
for step in " ".join(re.findall(r"^(?:steps|long)=\((.*)\)", text(".ci/run"), re.MULTILINE)).split():
    if f"`{step}`" not in page:
        faults.append(f"CONTRIBUTING.md: the step {step} is not named")

PAGE = "docs/architecture.md"
page = text(PAGE)
listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True).stdout
files = [pathlib.PurePath(path) for path in listed.splitlines() if pathlib.Path(path).exists()]


def meant(name):
    """The files that a path of the page may mean, which leaves folders out: those with the fewest other folders. Tests only
    if it begins with `tests`."""
    *folders, last = name.split("/")
    found = []
    for file in files:
        others = iter(file.parts[:-1])
        is_meant = "tests" not in file.parts or folders[:1] == ["tests"]
        if is_meant and file.name == last and all(folder in others for folder in folders):
            found.append(file)
    least = min((len(file.parts) for file in found), default=0)
    return [file for file in found if len(file.parts) == least]


for name in sorted(set(named(page))):
    if name.endswith("/"):
        parts = name.rstrip("/").split("/")
        if not any(all(part in file.parts for part in parts) for file in files):
            faults.append(f"{PAGE}: there is no {name}")
    elif len(found := meant(name)) != 1:
        faults.append(f"{PAGE}: {name} may be {len(found)} files: {' '.join(map(str, found))}")
for name, functions in re.findall(rf"`([\w/]+\.(?:rs|lua))`: ((?:`\w+`(?:, )?)+)", page):
    for function in re.findall(r"\w+", functions):
        if not any(re.search(rf"\b(?:fn|function) (?:\w+\.)?{function}\b", text(file)) for file in meant(name)):
            faults.append(f"{PAGE}: {name} has no function {function}")
code = "".join(text(file) for file in files if file.suffix == ".rs")
for name in sorted(set(re.findall(r"`([A-Z]\w*)`", page))):
    if not re.search(rf"\b(?:struct|enum|trait|type) {name}\b", code):
        faults.append(f"{PAGE}: there is no type {name}")
words, terms = len(re.findall(r"\S*\w\S*", page)), page.split("## Words")[1].split("\n## ")[0].count("\n| ") - 1
if words > MAX_WORDS or terms > MAX_TERMS:
    faults.append(f"{PAGE}: {words} words, {terms} of them explained; at most {MAX_WORDS} and {MAX_TERMS} are allowed")

features = text("Cargo.toml").split("\n[features]\n")[1].split("\n[")[0]
for feature in re.findall(r"^([\w-]+) = ", features, re.MULTILINE):
    if feature != "default" and f"\n//! | `{feature}`" not in text("src/lib.rs"):
        faults.append(f"src/lib.rs: the feature {feature} is not in the table")

def headings(path):
    """The anchors that GitHub gives to the headings of a page."""
    lines = re.findall(r"^#+ (.*)", re.sub(BLOCK, "", text(path)), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line) for line in lines]
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in plain}


BLOCK = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
HERE = re.compile(r"https://github\.com/tower-ratelimit/tower-ratelimit/(?:blob|tree)/main/")
for page in subprocess.check_output(["git", "ls-files", "*.md"], text=True).split():
    # A part of a page that `cargo run -p example-simulate` writes elsewhere.
    if not pathlib.Path(page).exists() or page == "examples/simulate/src/page.md":
        continue
    for link in re.findall(r"\]\(([^)\s]+)\)|^\[[^]]+\]: ([^<\s]+)", re.sub(r"`[^`\n]*`", "", re.sub(BLOCK, "", text(page))), re.MULTILINE):
        link = "".join(link)
        path, _, heading = HERE.sub("", link).partition("#")
        target = pathlib.Path(path) if HERE.match(link) else pathlib.Path(page).parent / path if path else pathlib.Path(page)
        if re.match(r"\w+:", path):
            continue
        if not target.exists():
            faults.append(f"{page}: {link} does not exist")
        elif heading and target.suffix == ".md" and heading not in headings(target):
            faults.append(f"{page}: {link} has no such heading")

guides = [pathlib.Path("COMPARE.md"), *pathlib.Path().glob("docs/*.md"), *pathlib.Path().glob("crates/*/docs/*.md")]
entries = re.split(r"^(?=## )", text("CHANGELOG.md"), flags=re.MULTILINE)[1:]
for name, length, limit in [
    ("README.md", text("README.md").count("\n"), "90 lines"),
    *((str(guide), len(text(guide).split()), "3000 words") for guide in guides if guide.name != "rules.md"),
    *(("CHANGELOG.md, " + entry.split("\n")[0], entry.count("\n"), "60 lines") for entry in entries),
]:
    if length > int(limit.split()[0]):
        faults.append(f"{name} has {length}, more than {limit}")

sys.exit("\n".join(faults) or None)
PYTHON
