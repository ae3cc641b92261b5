"""Holds comments to what exists: each path that a comment of Rust or of Lua names must exist. A path is relative to the root,
to `src`, or to a folder around the file or its `src`; a name alone is that of any file. Blocks of code are left out."""

import pathlib, subprocess, sys

from check_prose import comments, re

# A file of ours, or a folder in backticks.
PATH = re.compile(r"(?<![\w./:<*-])(?:[\w.*-]+/)*[\w-]+\.(?:rs|lua|md|sh|toml|py|json|ya?ml)\b(?!\.\w)|(?<=`)(?:[\w.-]+/)+(?=`)")
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


def main():
    faults = list(faults_of_paths(tracked()))
    if faults:
        sys.exit("\n".join(faults))


main()
