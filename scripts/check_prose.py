"""Counts the words that docs/language.md rules out, in comments of Rust and of Lua, and in pages.

`python3 scripts/check_prose.py [PATH…]` lists each finding in these files or folders, and then the findings in a thousand
lines of each folder. Without a path it reads what `scripts/check-structure.sh` limits. With `--check` it prints no findings
of folders within their limits, and fails if a folder is beyond one."""

import pathlib, re, sys

# The most findings in a thousand lines of comments, or of text in pages: idioms (rule 2), openings (rule 1), "of which"
# (rule 3). Lower a limit after a gain.
LIMITS = {
    "src": (2, 0.3, 1),
    "crates/rulefile/src": (3, 0.5, 1),
    "crates/client/src": (3, 1, 3.5),
    "crates/service/src": (3, 0.5, 1),
    "crates/gateway/src": (3, 0.5, 1),
    "crates/envoy/src": (3, 0.5, 1),
    "crates/cli/src": (3, 0.5, 1),
    "crates": (3, 0.5, 1),
    "tests": (3, 0.5, 1),
    "crates/client/tests": (5, 1, 5),
    "crates/client/docs": (8, 0, 2),
    "crates/testkit": (3, 0.5, 1.5),
    "docs": (2, 0, 0.5),
    "crates/replay/docs": (2, 0, 0.5),
    "crates/envoy/docs": (2, 0, 0.5),
    "crates/gateway/docs": (2, 0, 0.5),
    "crates/service/docs": (2, 0, 0.5),
    "benches": (5, 0, 3),
    "examples": (4, 0, 2),
    "fuzz": (5, 0, 5),
    "crates/playground": (9, 0, 9),
}

RULES = ("idioms", "openings", "which")

# Rule 2. Words of speech and of touch that stand for an action which the field has a word for.
IDIOMS = re.compile(
    r"""\b(?:
        tells?|told|telling|says?|said|saying|hears?|heard|hearing|asks?|asked|asking
      | (?:give|gives|gave|given|giving)\ up
      | (?:let|lets|letting)\ (?:pass|through|in|go)
      | (?:hold|holds|held|holding)\ to
      | (?:take|takes|took|taken|taking)\ for
      | (?:look|looks|looked|looking)\ (?:at|after|upon)
      | (?:go|goes|went|gone|going)\ on
      | (?:come|comes|came|coming)\ of
      | (?:is|are|was|were|be)\ there
      | (?:has|have|had)\ to\ do\ with
      | (?:think|thinks|thought)\ of
      | (?:know|knows|knew|known)\ of
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
# Rule 1. The first words of a comment.
OPENINGS = re.compile(r"(?:What|Who|Whose|That of|Those of|The same|So|Of)\b")
# Rule 3.
WHICH = re.compile(r"\b(?:of|by|for|to) which\b", re.IGNORECASE)

# A comment, or a literal, which may look like one.
RUST = re.compile(
    r"""(?P<comment>//[^\n]*)|/\*.*?\*/|\bb?r(?P<fence>\#*)".*?"(?P=fence)|"(?:\\.|[^"\\])*"|'(?:\\[^\n]{1,9}?|[^'\\\n])'""",
    re.DOTALL,
)
LUA = re.compile(r"""(?P<comment>--[^\n]*)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""")
MARK = re.compile(r"//[/!]?|--+")
# Names and links are no prose.
NAMES = re.compile(r"`[^`]*`|\]\([^)]*\)|<(?:https?|data):[^>]*>")


def comment_lines(text, pattern):
    """Each line with a comment: its number, the kind of comment with its column, and its words."""
    line, counted = 1, 0
    for found in pattern.finditer(text):
        if not found["comment"]:
            continue
        line += text.count("\n", counted, found.start())
        counted = found.start()
        column = found.start() - text.rfind("\n", 0, found.start())
        mark = MARK.match(found["comment"])[0]
        yield line, (mark, column), found["comment"][len(mark) :].strip()


def comments(path):
    """The lines of comments of a file without examples of code: number and words."""
    lines = comment_lines(path.read_text(encoding="utf-8"), LUA if path.suffix == ".lua" else RUST)
    return [(line, words) for line, _, words in prose(lines)]


def page_lines(text):
    for line, words in enumerate(text.splitlines(), 1):
        yield line, "page", words.strip()


def prose(lines):
    """The lines without examples of code, with the text of the lines before them in the same block: a finding may go
    over the end of a line, and only a block's first word is an opening."""
    block, last, example = None, 0, False
    for line, kind, words in lines:
        if words.startswith("```"):
            example = not example
        begins = (kind, line) != (block, last + 1)
        block, last = kind, line
        if not example and not words.startswith("```"):
            yield line, begins, words


def findings(path):
    """The number of lines of prose in a file, and its findings: line, rule, words."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        lines = page_lines(text)
    else:
        lines = comment_lines(text, LUA if path.suffix == ".lua" else RUST)
    count, found, before = 0, [], ""
    for line, begins, words in prose(lines):
        count += bool(words)
        words = NAMES.sub("`", words)
        opening = OPENINGS.match(words)
        if begins and opening and path.suffix != ".md":  # headings of pages may be questions
            found.append((line, "openings", opening[0]))
        before = "" if begins else before.rsplit(" ", 1)[-1]
        joined = f"{before} {words}"
        for rule, pattern in (("idioms", IDIOMS), ("which", WHICH)):
            for match in pattern.finditer(joined):
                if match.end() > len(before):  # else it was found with the line before
                    found.append((line, rule, match[0]))
        before = words
    return count, found


def files(path):
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in (".rs", ".lua", ".md") and "target" not in file.parts)


def rates(path):
    """Reads a folder or a file: the lines of prose, the findings, and how many of each rule are in a thousand lines."""
    lines, found = 0, []
    for file in files(path):
        count, here = findings(file)
        lines += count
        found += [(file, *finding) for finding in here]
    per_thousand = lambda rule: 1000 * sum(kind == rule for _, _, kind, _ in found) / max(lines, 1)
    return lines, found, tuple(per_thousand(rule) for rule in RULES)


def main():
    check = "--check" in sys.argv
    paths = [argument for argument in sys.argv[1:] if argument != "--check"] or LIMITS
    table, beyond = [f"{'findings in 1,000 lines':24} {'lines':>6} " + " ".join(f"{rule:>9}" for rule in RULES)], []
    for path in map(pathlib.Path, paths):
        if not path.exists():
            sys.exit(f"there is no {path}")
        lines, found, here = rates(path)
        limits = LIMITS.get(str(path))
        over = [rule for rule, rate, limit in zip(RULES, here, limits or here) if rate > limit]
        for file, line, rule, words in found:
            if rule in over or not check:
                print(f"{file}:{line}: {rule}: {words}")
        table.append(f"{str(path):24} {lines:6} " + " ".join(f"{rate:9.1f}" for rate in here))
        beyond += [f"{path}: more {rule} than the limit of {dict(zip(RULES, limits))[rule]}" for rule in over]
    print("\n".join(table))
    if check and beyond:
        sys.exit("\n".join(beyond) + "\nsee docs/language.md")


if __name__ == "__main__":
    main()
