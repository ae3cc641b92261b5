"""The rules of scripts/check-structure.sh. Started at the root of the repository."""

import pathlib, re, sys

MAX_FILE_LINES = 900
MAX_FUNCTION_LINES = 80
# What is published.
CRATES = ["src"] + [str(path) for path in sorted(pathlib.Path("crates").glob("*/src")) if path.parts[1] not in ("playground", "testkit")]
# Packages of one release, which may use what they hide from users.
OF_ONE_RELEASE = [
    {"src"} | {f"crates/{name}/src" for name in ("core", "store", "shared", "layer", "client-ip", "budgets", "concurrency", "rules")},
    {f"crates/{package}/src" for package in ("cli", "envoy", "gateway", "service")},
]
# Their files stand in circles of no length, but their folders have no order.
WITHOUT_ORDER = {"crates/shared/src", "crates/rules/src"}
# Packages outside of the workspace, which only the nightly workflow builds.
OUTSIDE = re.findall(r'"([^"]+)"', re.search(r"^exclude = \[(.*)\]", pathlib.Path("Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1])
# Macros of one package for another stand at its root.
MACROS = {"inner_service", "common_builder_methods"}

COMMENT_OR_LITERAL = re.compile(
    r"""(//[/!][^\n]*)|//[^\n]*|/\*.*?\*/|\bb?r(\#*)".*?"\2|"(?:\\.|[^"\\])*"|'(?:\\[^\n]{1,9}?|[^'\\\n])'""", re.DOTALL
)
# The folders in which no `match` is on a `bool`, which is an `if`.
WITHOUT_BOOL_MATCHES = [
    "src", "crates", "tests", "examples", "benches", "fuzz"
]
BOOL_MATCH = re.compile(r"\{\s*(?:true|false) =>")

VISIBLE = r"(?:pub(?:\([^)]*\))? )?"
MODULE = VISIBLE + r"mod (\w+)"
INLINE_MODULE = re.compile(MODULE + r"\s*\{")
TEST_MODULE = re.compile(r"#\[cfg\((?:all\()?test\b[^]]*\]\s*(?:#\[[^]]*\]\s*)*" + MODULE + r"\s*([;{])")
USE = re.compile(r"^ *(pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)
RESTRICTED = re.compile(r"pub\(in [^)]*\)")
PATH = re.compile(r"(?<![\w$:])(?:crate|self|super)(?:::\w+)+(?:::\*)?(?=\W)")
FUNCTION = re.compile(r"^[ ]*" + VISIBLE + r"(?:default |const |async |extern )*fn (\w+)", re.MULTILINE)
# An item that the documentation leaves out, so that a patch release may change it: its name, or a re-export.
HIDDEN = re.compile(
    r"#\[doc\(hidden\)\]\s*(?:#\[[^]]*\]\s*)*"
    + VISIBLE
    + r"(?:use ([^;]+);|(?:default |const |async )*fn (\w+)|(?:mod|struct|enum|trait|type|const|static|union) (\w+))"
)
# Methods of other libraries with the name of a hidden one.
FOREIGN_METHODS = {"as_bytes", "as_nanos", "from_bytes", "boxed", "hash", "timeout"}
MARK = "\0"  # stands for text that does not count as code


class File:
    """One file of a crate: its place in the tree of modules, and its code."""

    def __init__(self, path, src):
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        parts = path.relative_to(src).with_suffix("").parts
        self.module = parts[:-1] if parts[-1] in ("lib", "mod") else parts
        self.code, self.test_modules = code_of(self.text)

    def line(self, position):
        return self.code.count("\n", 0, position) + 1

    def is_test(self, test_modules):
        return any(self.module[: len(test)] == test for test in test_modules)


def code_of(text):
    """The text without comments, literals and test modules, on the same lines; and the test modules in other files."""
    blank = lambda text, by: re.sub(r"[^\n]", by, text)
    text = COMMENT_OR_LITERAL.sub(lambda found: blank(found[0], MARK if found[1] else " "), text)
    elsewhere = []
    while module := TEST_MODULE.search(text):
        end = block_end(text, module.end()) if module[2] == "{" else module.end()
        elsewhere += [module[1]] if module[2] == ";" else []
        text = text[: module.start()] + re.sub(r"[^\n]*", MARK, text[module.start() : end]) + text[end:]
    return text, elsewhere


def block_end(text, start):
    """The position after the brace that closes the block in which `start` lies."""
    depth, end = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return end


def expanded(tree):
    """The paths of a `use` tree as lists of names: `a::{b, c as d}` are `a::b` and `a::c`, with the name each gets."""
    tree = re.sub(r"\s+", " ", tree).strip()
    if "{" not in tree:
        path, _, alias = tree.partition(" as ")
        names = path.split("::")
        if names[-1] == "self":
            names.pop()
        return [(names, alias or names[-1])]
    head, _, rest = tree.partition("{")
    paths, depth, start = [], 0, 0
    for at, char in enumerate(rest):
        if (char == "," and depth == 0) or (char == "}" and depth == 0):
            if rest[start:at].strip():
                paths += expanded(head + rest[start:at].strip())
            start = at + 1
        depth += {"{": 1, "}": -1}.get(char, 0)
    return paths


def imports(file):
    """Each import of a file: its position, the names of its path, the name it gives, and whether that is re-exported."""
    code = RESTRICTED.sub(blanked, file.code)
    inline = [range(found.start(), block_end(code, found.end())) for found in INLINE_MODULE.finditer(code)]

    def seen_by_the_file(position, names):
        for _ in range(sum(position in module for module in inline)):
            names = (names[1:] or ["self"]) if names[0] == "super" else names
        return names

    for use in USE.finditer(code):
        for names, name in expanded(use[2]):
            yield use.start(), seen_by_the_file(use.start(), names), name, bool(use[1])
    for path in PATH.finditer(USE.sub(blanked, code)):
        yield path.start(), seen_by_the_file(path.start(), path[0].split("::")), None, False


class Tree:
    """All files that are no tests, and the imports between them."""

    def __init__(self, files, test_modules):
        self.files = {file.module: file for file in files}
        self.test_modules = test_modules
        self.names = {
            file.module: {name: path for _, path, name, _ in imports(file) if name} for file in files
        }

    def imported(self, file):
        """What a file imports: positions, and the files that its paths name and those that define it, which differ if the
        former hand it on. A re-export is no import unless the file uses the name itself."""
        for position, path, name, is_reexport in imports(file):
            if is_reexport and not re.search(rf"(?<!\bmod )\b{name}\b", USE.sub("", file.code)):
                continue
            for module in {self.definer(file.module, path), self.definer(file.module, path, follows=False)}:
                if module is not None and module != file.module:
                    yield position, self.files[module]

    def definer(self, module, path, follows=True, steps=0):
        """The module that defines what `path` names in `module`, or only hands it on unless `follows`; none if that is
        another crate or a test."""
        if path[0] in ("crate", "self", "super"):
            module = () if path[0] == "crate" else module
        elif module + (path[0],) not in self.files:
            return None
        else:
            path = ["self", *path]
        for name in path:
            if name in ("crate", "self"):
                continue
            if name == "super":
                module = module[:-1]
            elif module + (name,) in self.test_modules:
                return None
            elif module + (name,) in self.files:
                module += (name,)
            elif follows and name in self.names.get(module, {}) and steps < 9:
                found = self.definer(module, self.names[module][name], steps=steps + 1)
                return module if found is None else found
            else:
                break
        return module if module in self.files else None


def circles(edges):
    """The sets of files each of which is reached from each other (Tarjan's algorithm)."""
    found, stack, low, number = [], [], {}, {}

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in edges[node]:
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(stack[at:])
            del stack[at:]

    for node in edges:
        if node not in number:
            visit(node)
    return found


def chain(circle, edges):
    """The shortest way from the first file of a circle back to it."""
    ways = [[min(circle)]]
    for way in ways:
        if way[0] in edges[way[-1]]:
            return way + way[:1]
        ways += [[*way, other] for other in sorted(edges[way[-1]]) if other in circle and other not in way]


def faults_of_circles(tree):
    """Circles of any length."""
    edges, places = {}, {}
    for file in tree.files.values():
        edges[str(file.path)] = set()
        if not file.module:
            continue  # lib.rs only hands on
        for position, other in tree.imported(file):
            if other.module:
                edges[str(file.path)].add(str(other.path))
                places.setdefault((str(file.path), str(other.path)), file.line(position))
    for circle in circles(edges):
        yield f"{len(circle)} files import from each other in circles, such as:"
        way = chain(circle, edges)
        for one, other in zip(way, way[1:]):
            yield f"  {one}:{places[one, other]} imports from {other}"


def faults_of_order(files, root, order):
    """Imports from modules that stand later in the crate's lib.rs."""
    for file in files:
        if not file.module:
            continue
        if file.module[0] not in order:
            yield f"{file.path}: {root.path} has no `mod {file.module[0]}`"
            continue
        for position, path, _, _ in imports(file):
            if path[: len(file.module)] == ["super"] * len(file.module):
                path = ["crate", *path[len(file.module) :]]
            if path[0] != "crate" or len(path) == 1:
                continue
            name, here = path[1], file.module[0]
            where = f"{file.path}:{file.line(position)}: {here} imports"
            if name in MACROS:
                continue
            if name not in order:
                yield f"{where} `{name}` from the crate root: name its module"
            elif order.index(name) > order.index(here):
                yield f"{where} from {name}, which stands after it in {root.path}"


def is_described(file):
    """Whether the file says what it is. A page of the guide does by its text; in an included file `//!` is an error."""
    return re.match(r"//! [^[]|// An expression, for `include!`", file.text) or "#![doc = include_str!(" in file.text


def faults_of_size(file):
    lines = sum(MARK not in line for line in file.code.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{file.path}: {lines} lines, at most {MAX_FILE_LINES} are allowed"
    for function in FUNCTION.finditer(file.code):
        body = re.compile(r"[;{]").search(re.sub(r"\[[^][]*\]", lambda at: " " * len(at[0]), file.code), function.end())
        if body[0] == "{":
            whole = file.code[function.start() : block_end(file.code, body.end())]
            lines = sum(bool(line.strip()) for line in whole.splitlines())
            if lines > MAX_FUNCTION_LINES:
                where = f"{file.path}:{file.line(function.start())}"
                yield f"{where}: `{function[1]}` has {lines} lines, at most {MAX_FUNCTION_LINES} are allowed"


def faults_of_matches(folder):
    """Each `match` on a `bool`."""
    if not pathlib.Path(folder).is_dir():
        yield f"scripts/structure.py: there is no folder {folder}"
    for path in sorted(pathlib.Path(folder).rglob("*.rs")):
        code, _ = code_of(path.read_text(encoding="utf-8"))
        for found in BOOL_MATCH.finditer(code):
            yield f"{path}:{code.count(chr(10), 0, found.start()) + 1}: a `match` on a `bool`: use `if`"


def hidden_names(code):
    """The hidden items of a file: the name of each, and whether it is a function."""
    for reexport, function, item in HIDDEN.findall(code):
        for _, name in expanded(reexport) if reexport else []:
            yield name, False
        if function or item:
            yield function or item, bool(function)


def handed_on():
    """The modules of other packages that the library hands on, and the paths that users have."""
    code = pathlib.Path("src/lib.rs").read_text(encoding="utf-8")
    whole = re.findall(r"^pub use (tower_ratelimit_\w+) as (\w+);", code, re.MULTILINE)
    trees = re.findall(r"^pub use (tower_ratelimit_\w+)::\{?([a-z_, ]+)\}?;", code, re.MULTILINE)
    listed = set(pathlib.Path("tests/public_paths.txt").read_text(encoding="utf-8").splitlines())
    return {name: crate for crate, names in [*whole, *trees] for name in names.split(", ")}, listed


def by_package(path, handed):
    """A path through the library to what users have not, as one of the package that it hands on."""
    modules, listed = handed
    if path[0] != "tower_ratelimit" or len(path) < 3 or path[1] not in modules or "::".join(path[1:3]) in listed:
        return path
    return [modules[path[1]], *path[2:]]


def faults_of_hidden():
    """Uses of an item that another package hides: a path that contains it, or a call of it. Of methods only those count
    whose name no visible function and none of the caller's has, since this script knows no types."""
    read = lambda path: code_of(path.read_text(encoding="utf-8"))[0]
    crates = {src: {path: read(path) for path in sorted(pathlib.Path(src).rglob("*.rs"))} for src in CRATES}
    functions = {
        src: [found for code in files.values() for found in FUNCTION.finditer(HIDDEN.sub("", code))]
        for src, files in crates.items()
    }
    handed = handed_on()
    public = {found[1] for all in functions.values() for found in all if "pub " in found[0]} | FOREIGN_METHODS
    paths_of = {}
    for path, code in ((path, code) for files in crates.values() for path, code in files.items()):
        paths = [(use.start(), path) for use in USE.finditer(code) for path, _ in expanded(use[2])]
        inline = re.finditer(r"\btower_ratelimit(?:_\w+)?(?:::\w+)+", USE.sub(blanked, code))
        paths += [(found.start(), found[0].split("::")) for found in inline]
        paths_of[path] = [(at, by_package(path, handed)) for at, path in paths]
    for src, files in crates.items():
        crate = "_".join(["tower_ratelimit", *src.removeprefix("crates/").replace("-", "_").split("/")[:-1]])
        hidden = [found for code in files.values() for found in hidden_names(code)]
        functions_of = {name for name, is_function in hidden if is_function}
        names, methods = {name for name, _ in hidden}, functions_of - public
        others = [other for other in CRATES if other != src and not any(all.issuperset((src, other)) for all in OF_ONE_RELEASE)]
        for other, path in ((other, path) for other in others for path in crates[other]):
            code = crates[other][path]
            calls = "|".join(methods - {found[1] for found in functions[other]}) or "(?!)"
            # A function ends its path: a module may have the name of a method.
            within = lambda path: names.intersection(path[:-1]) - functions_of | names.intersection(path[-1:])
            uses = [(at, name) for at, path in paths_of[path] if path[0] == crate for name in within(path)]
            uses += [(at.start(), at[1]) for at in re.finditer(rf"(?:\.|(?<!testkit)::)\s*({calls})\s*(?:::<|\()", code)]
            for at, name in uses:
                line = code.count("\n", 0, at) + 1
                yield f"{path}:{line}: uses `{name}`, which the documentation of {crate} leaves out"


def unknown(root, names):
    """The first of the names of a path that the module before it neither has as a file nor mentions."""
    folder, file = root.parent, root
    for name in names:
        found = [path for path in (folder / f"{name}.rs", folder / name / "mod.rs") if path.exists()]
        if not found:
            return None if re.search(rf"\b{name}\b|::\*", code_of(file.read_text(encoding="utf-8"))[0]) else name
        folder, file = folder / name, found[0]


def faults_of_outside():
    """Paths in packages outside of the workspace that name nothing in their own crate, the library's packages or testkit."""
    name_of = lambda manifest: re.search(r'^name = "(.*)"', manifest.read_text(encoding="utf-8"), re.MULTILINE)[1]
    libraries = [path for folder in (".", "crates/*", *OUTSIDE) for path in pathlib.Path().glob(f"{folder}/src/lib.rs")]
    roots = {name_of(path.parents[1] / "Cargo.toml").replace("-", "_"): path for path in libraries}
    for file in sorted(path for package in OUTSIDE for path in pathlib.Path(package).rglob("*.rs") if "target" not in path.parts):
        code, _ = code_of(file.read_text(encoding="utf-8"))
        paths = [(use.start(), path) for use in USE.finditer(code) for path, _ in expanded(use[2])]
        paths += [(at.start(), at[0].split("::")) for at in re.finditer(r"(?<![\w:$])\w+(?:::\w+)+", USE.sub(blanked, code))]
        own = [folder / name for folder in file.parents for name in ("lib.rs", "main.rs") if (folder / name).exists()]
        for at, (first, *names) in paths:
            root = own[0] if first == "crate" and own else roots.get(first)
            if root and (name := unknown(root, names)):
                yield f"{file}:{code.count(chr(10), 0, at) + 1}: {root} leads to no `{name}`"


def blanked(found):
    """The text that was found, without anything but its lines."""
    return re.sub(r"[^\n]", " ", found[0])


def faults_of_crate(src):
    everything = [File(path, src) for path in sorted(pathlib.Path(src).rglob("*.rs"))]
    test_modules = {file.module + (name,) for file in everything for name in file.test_modules}
    files = [file for file in everything if not file.is_test(test_modules)]
    for file in everything:
        if not is_described(file):
            yield f"{file.path}: does not begin with a `//!` line that says what it is"
    for file in files:
        yield from faults_of_size(file)
    # A program is a crate of its own, which imports the library.
    files = [file for file in files if file.module != ("main",)]
    root = next(file for file in files if not file.module)
    if src not in WITHOUT_ORDER:
        yield from faults_of_order(files, root, re.findall("^" + MODULE, root.code, re.MULTILINE))
    yield from faults_of_circles(Tree(files, test_modules))


def main():
    faults = [fault for src in CRATES for fault in faults_of_crate(src)]
    faults += [fault for folder in WITHOUT_BOOL_MATCHES for fault in faults_of_matches(folder)]
    faults += faults_of_hidden()
    faults += dict.fromkeys(faults_of_outside())
    if faults:
        sys.exit("\n".join(faults))


main()
