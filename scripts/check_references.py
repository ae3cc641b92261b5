"""Holds comments to what exists: each path that a comment of Rust or of Lua names must exist. A path is relative to the root,
to `src`, or to a folder around the file or its `src`; a name alone is that of any file. Blocks of code are left out.

A measured cost in a comment is true of one machine and one day, so its line names the bench that measures it. A time counts as
measured if it is in ns or µs, and is no bound (`at most 20 µs`, `2^59 ns`); a number if it is one of instructions, a factor
(`2.7 ×`, `3 times as long`), or a percentage of time."""

import pathlib, subprocess, sys

from check_prose import comments, re

# A file of ours, or a folder in backticks.
PATH = re.compile(r"(?<![\w./:<*-])(?:[\w.*-]+/)*[\w-]+\.(?:rs|lua|md|sh|toml|py|json|ya?ml)\b(?!\.\w)|(?<=`)(?:[\w.-]+/)+(?=`)")
SOURCES = ("src/", "rulefile/src/", "client/src/", "server/src/", "cli/src/")
NUMBER = r"\d[\d.,]*"
WORD = rf"(?:{NUMBER}|twice|half|(?:two|three|four|five|six|seven|eight|nine|ten|several) times)"
COST = re.compile(
    rf"(?<!\^)(?<!from )(?<!up to )(?<!within )(?<!at least )(?<!at most )(?<![\d.,]){NUMBER}\s?(?:ns|µs|us)\b"
    rf"|{NUMBER}\s(?:instructions|cycles)\b|{NUMBER}\s×(?!\s?\d)"
    rf"|{WORD} (?:times )?as (?:long|fast|slow|expensive|cheap|much time)\b"
    rf"|{NUMBER}\s?(?:%|percent) (?:slower|faster|longer|cheaper|of (?:the|its|a) (?:time|cost|CPU|request)|(?:more|less|fewer) (?:time|instructions))"
)
BENCH = re.compile(r"\bbenches/\w|--bench \w|\bbench `")
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


def main():
    files = tracked()
    faults = [*faults_of_paths(files), *faults_of_costs(files)]
    if faults:
        sys.exit("\n".join(faults))


main()
