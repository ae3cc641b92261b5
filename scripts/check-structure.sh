#!/usr/bin/env bash
# Holds the code to its two rules of structure:
# - no file in src/ has more than 450 lines, doc comments and test modules not counted;
# - the `mod` lines of src/lib.rs stand in the order in which a request passes them, and a module imports only from
#   modules that stand before it: so there are no circles, and the crate can be read from the top.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/need.sh

need python3 python3

python3 - <<'PYTHON'
import pathlib, re, sys

MAX_LINES = 450
SRC = pathlib.Path("src")
COMMENT_OR_LITERAL = re.compile(
    r"""(//[/!][^\n]*)|//[^\n]*|/\*.*?\*/|\bb?r(\#*)".*?"\2|"(?:\\.|[^"\\])*"|'(?:\\[^\n]{1,9}?|[^'\\\n])'""", re.DOTALL
)
MODULE = r"(?:pub(?:\([^)]*\))? )?mod (\w+)"
TEST_MODULE = re.compile(r"#\[cfg\((?:all\()?test\b[^]]*\]\s*(?:#\[[^]]*\]\s*)*" + MODULE + r"\s*([;{])")
GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
IMPORT = re.compile(r"(?<![\w$])crate::(\w+(?![\w!])|\*|" + GROUP + ")")
MARK = "\0"  # stands for what does not count as a line of code


def module_path(file):
    parts = file.relative_to(SRC).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("lib", "mod") else parts


def code_of(text):
    """The text without comments, literals and test modules, on the same lines; and the test modules in other files."""
    blank = lambda text, by: re.sub(r"[^\n]", by, text)
    text = COMMENT_OR_LITERAL.sub(lambda found: blank(found[0], MARK if found[1] else " "), text)
    elsewhere = []
    while module := TEST_MODULE.search(text):
        end = module.end()
        depth = 1 if module[2] == "{" else 0
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        elsewhere += [module[1]] if module[2] == ";" else []
        text = text[: module.start()] + re.sub(r"[^\n]*", MARK, text[module.start() : end]) + text[end:]
    return text, elsewhere


def imported(path):
    """The first segments of what stands after `crate::`, a name or a group in braces."""
    if not path.startswith("{"):
        return [path]
    path = path[1:-1]
    while "{" in path:
        path = re.sub(r"\{[^{}]*\}", "", path)
    return re.findall(r"(?:^|,)\s*(\w+|\*)", path)


codes, test_modules = {}, set()
for file in sorted(SRC.rglob("*.rs")):
    codes[file], elsewhere = code_of(file.read_text(encoding="utf-8"))
    test_modules |= {module_path(file) + (name,) for name in elsewhere}

order = re.findall("^" + MODULE, codes[SRC / "lib.rs"], re.MULTILINE)
faults = []
for file, code in codes.items():
    path = module_path(file)
    if any(path[: len(test)] == test for test in test_modules):
        continue
    lines = sum(MARK not in line for line in code.splitlines())
    if lines > MAX_LINES:
        faults.append(f"{file}: {lines} lines, at most {MAX_LINES} are allowed")
    if not path:
        continue  # lib.rs only hands on
    if path[0] not in order:
        faults.append(f"{file}: src/lib.rs has no `mod {path[0]}`")
        continue
    up_to_root = r"\b(?:super::){%d}(?!super\b)" % len(path)
    for found in IMPORT.finditer(re.sub(up_to_root, "crate::", code)):
        for name in imported(found[1]):
            where = f"{file}:{code.count(chr(10), 0, found.start()) + 1}: {path[0]} imports"
            if name not in order:
                faults.append(f"{where} `{name}` from the crate root: name its module")
            elif order.index(name) > order.index(path[0]):
                faults.append(f"{where} from {name}, which stands after it in src/lib.rs")

print(*faults, sep="\n", file=sys.stderr, end="\n" if faults else "")
if faults:
    sys.exit(1)
print(f"{len(codes)} files in {len(order)} modules: {' '.join(order)}")
PYTHON
