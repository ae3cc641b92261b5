"""Holds comments to what exists: each path that a comment of Rust or of Lua names must exist. A path is relative to the root,
to `src`, or to a folder around the file or its `src`; a name alone is that of any file. Blocks of code are left out.

A measured cost in a comment is true of one machine and one day, so its line names the bench that measures it. A time counts as
measured if it is in ns or µs, and is no bound (`at most 20 µs`, `2^59 ns`); a number if it is one of instructions, a factor
(`2.7 ×`, `3 times as long`), or a percentage of time.

Each script in Lua names the functions in Rust that do the same: `-- Twins in FILE: lua = rust, both.`, or that there are none.

Each path below the root in `.ci`, `.config`, `.github` and `scripts` matches a file, and each name in .config/nextest.toml a
test, as do the filters of the tests that pages name."""

import pathlib, subprocess, sys

from check_prose import comments, re

# A file of ours, or a folder in backticks.
PATH = re.compile(r"(?<![\w./:<*-])(?:[\w.*-]+/)*[\w-]+\.(?:rs|lua|md|sh|toml|py|json|ya?ml)\b(?!\.\w)|(?<=`)(?:[\w.-]+/)+(?=`)")
SOURCES = ("src/", "crates/")
TWINS = re.compile(r"^-- Twins(?: in (\S+\.rs)(, in one piece here)?: ([\w, =]+)\.$|: none\.)", re.MULTILINE)
NUMBER = r"\d[\d.,]*"
WORD = rf"(?:{NUMBER}|twice|half|(?:two|three|four|five|six|seven|eight|nine|ten|several) times)"
COST = re.compile(
    rf"(?<!\^)(?<!from )(?<!up to )(?<!within )(?<!at least )(?<!at most )(?<![\d.,]){NUMBER}\s?(?:ns|µs|us)\b"
    rf"|{NUMBER}\s(?:instructions|cycles)\b|{NUMBER}\s×(?!\s?\d)"
    rf"|{WORD} (?:times )?as (?:long|fast|slow|expensive|cheap|much time)\b"
    rf"|{NUMBER}\s?(?:%|percent) (?:slower|faster|longer|cheaper|of (?:the|its|a) (?:time|cost|CPU|request)|(?:more|less|fewer) (?:time|instructions))"
)
BENCH = re.compile(r"\bbenches/\w|--bench \w|\bbench `")
# Paths of scripts to what a program writes, in a folder that a script makes, or of packages that scripts/size.py expects.
OF_OTHER_FOLDERS = {"src/main.rs", "fuzz/target"}
# Files that programs write where they run.
WRITTEN = {"summary.md", "unmet.md"}


def tracked():
    """The files of the repository, with those that are not committed yet."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True).stdout
    return [path for path in map(pathlib.Path, listed.splitlines()) if path.exists()]


def exists(name, file, names):
    if "/" not in name:
        return name in names
    roots = [pathlib.Path("src"), *file.parents, *(folder / "src" for folder in file.parents)]
    return any(found for root in roots for found in root.glob(name))


def faults_of_paths(files):
    """Paths in comments without a file or a folder."""
    names = {path.name for path in files} | WRITTEN
    for file in files:
        if file.suffix in (".rs", ".lua"):
            for line, words in comments(file):
                for name in PATH.findall(words):
                    if not exists(name, file, names):
                        yield f"{file}:{line}: there is no {name}"


def faults_of_costs(files):
    """Measured costs in comments of a package's `src` whose line names no bench."""
    for file in files:
        if file.suffix in (".rs", ".lua") and str(file).startswith(SOURCES):
            last, before = 0, ""
            for line, words in comments(file):
                # A cost may begin on the line before, with its last words.
                before = " ".join(before.split()[-3:]) + " " if line == last + 1 else ""
                for cost in COST.finditer(before + words):
                    if cost.end() > len(before) and not BENCH.search(words):
                        yield f"{file}:{line}: `{cost[0]}` is measured: name the bench on this line, or leave it out"
                last, before = line, words


def faults_of_twins(files):
    """Functions in the heads of scripts that Lua or Rust does not have, and scripts whose head names none."""
    for file in files:
        # Its text is that of constants in Rust, which a test compares.
        if file.suffix != ".lua" or file.name == "constants.lua":
            continue
        text = file.read_text(encoding="utf-8")
        twins = TWINS.findall(text)
        if len(twins) != text.count("\n-- Twins") or not twins:
            yield f"{file}: a line of its head has to be `-- Twins in FILE: lua = rust, both.` or begin with `-- Twins: none.`"
        for rust, is_one_piece, pairs in twins:
            found = [path for path in files if rust and "src" in path.parts and f"/{path}".endswith(f"/{rust}")]
            if rust and len(found) != 1:
                yield f"{file}: {rust} is the name of {len(found)} files"
                continue
            for pair in filter(None, pairs.split(", ")):
                ours, theirs = (pair.split(" = ") * 2)[:2]
                if not is_one_piece and not re.search(rf"function (?:\w+\.)?{ours}\(|\b{ours} = [^\n]*function\(", text):
                    yield f"{file}: there is no function {ours}"
                if not re.search(rf"\bfn {theirs}\b", found[0].read_text(encoding="utf-8")):
                    yield f"{found[0]}: there is no function {theirs}, which {file} names"


def faults_of_scripts(files):
    """Paths in what runs the checks that match no file, so that a check of theirs passes because it finds nothing."""
    folders = "|".join(re.escape(folder) for folder in {path.parts[0] for path in files if len(path.parts) > 1})
    below_root = re.compile(rf"(?<![\w$}}/.*\\-])(?:{folders})/[\w./*-]*[\w*]")
    scripts = [path for path in files if path.parts[0] in (".ci", ".config", ".github", "scripts")]
    for file in scripts:
        for line, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            names = below_root.findall(text)
            names += text.split("touched ")[1].split("||")[0].split() if text.lstrip().startswith("touched ") else []
            for name in set(names) - OF_OTHER_FOLDERS:
                if not any(pathlib.Path().glob(name.replace("/.*", "/*"))):
                    yield f"{file}:{line}: {name} matches no file"


def faults_of_test_names(files):
    """Names in .config/nextest.toml that no test, module, binary or package has."""
    config = pathlib.Path(".config/nextest.toml")
    code = "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix == ".rs")
    manifests = "\n".join(path.read_text(encoding="utf-8") for path in files if path.name == "Cargo.toml")
    has = {
        "test": lambda name: re.search(rf"\bmod \w*{name}|\bfn \w*{name}", code),
        "binary": lambda name: any(path.match(f"tests/{name}/main.rs") or path.match(f"tests/{name}.rs") for path in files),
        "package": lambda name: f'name = "{name}"' in manifests,
    }
    for line, text in enumerate(config.read_text(encoding="utf-8").splitlines(), 1):
        for kind, names in re.findall(r"\b(test|binary|package)\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text):
            for name in re.findall(r"[\w-]+", names):
                if not has[kind](name):
                    yield f"{config}:{line}: {name} is in the name of no {kind}"


def faults_of_commands(files):
    """Filters and variables of the commands that pages name for tests, which no test has."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix == ".rs")
    for page in (path for path in files if path.suffix == ".md" and (path.name == "CONTRIBUTING.md" or "docs" in path.parts)):
        for line, text in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for variables, arguments in re.findall(r"`((?:[A-Z_]+=\S+ )*)cargo (?:nextest run|test) ([^`]*)`", text):
                filters = re.sub(r"(?:-p|--package|--test|--features) \S+|--[\w-]+", "", arguments.split(" -- ")[0]).split()
                for name in filters:
                    if not re.search(rf"\b(?:fn|mod) \w*{name.strip(':')}", tests):
                        yield f"{page}:{line}: {name} is in the name of no test"
                for name in re.findall(r"[A-Z_]+(?==)", variables):
                    if f'"{name}"' not in tests:
                        yield f"{page}:{line}: no test reads {name}"


def main():
    files = tracked()
    faults = [*faults_of_paths(files), *faults_of_costs(files), *faults_of_twins(files), *faults_of_scripts(files), *faults_of_test_names(files), *faults_of_commands(files)]
    if faults:
        sys.exit("\n".join(faults))


main()
