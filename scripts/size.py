"""Counts what a reader of the project has to read, and fails above a ceiling of scripts/size.toml. The only counter of code.
Run it from the project's root: `python3 scripts/size.py`. `--wings` prints the folders of each package, too, and `--write`
makes the ceilings the numbers of today.

Code is what remains without blank lines, comments, test modules and test files. Lua likewise, without comments.
A reading is the code of all files that the first ones import by `use`, directly or not; a name that a crate re-exports,
also from another crate, counts as the file that defines it. Paths written out in code and renamed crates are not followed:
do not write them to be counted less. Packages are the root package and `crates/*` (or, before they are moved there, the
folders of the workspace). "library" is the root package and the crates below it. Inner public items are `pub(crate)` and
`pub(super)` ones, and in crates of the library also items of modules that the root package does not hand on.
"""
import os
import re
import sys
import tomllib

CEILINGS = "scripts/size.toml"


def without_comments(text):
    out, i, n = [], 0, len(text)
    while i < n:
        if text.startswith("//", i):
            j = text.find("\n", i)
            i = n if j < 0 else j
            continue
        if text.startswith("/*", i):
            depth, j = 1, i + 2
            while j < n and depth:
                if text.startswith("/*", j):
                    depth, j = depth + 1, j + 2
                elif text.startswith("*/", j):
                    depth, j = depth - 1, j + 2
                else:
                    if text[j] == "\n":
                        out.append("\n")
                    j += 1
            i = j
            continue
        c = text[i]
        before = text[i - 1] if i else " "
        raw = re.match(r'(b|c)?r(#*)"', text[i:i + 12]) if c in "rbc" and not (before.isalnum() or before == "_") else None
        if raw:
            j = text.find('"' + raw.group(2), i + raw.end())
            j = n if j < 0 else j + 1 + len(raw.group(2))
            out.append(text[i:j])
            i = j
            continue
        if c == '"':
            j = i + 1
            while j < n and text[j] != '"':
                j += 2 if text[j] == "\\" else 1
            out.append(text[i:j + 1])
            i = j + 1
            continue
        if c == "'":
            char = re.match(r"'(\\.[^']*|[^\\'])'", text[i:i + 14])
            if char:
                out.append(char.group(0))
                i += char.end()
                continue
        out.append(c)
        i += 1
    return "".join(out)


def masked(text):
    def blank(m):
        return re.sub(r"[^\n]", "_", m.group(0))
    text = re.sub(r'(b|c)?r(#+)".*?"\2', blank, text, flags=re.S)
    text = re.sub(r'"(\\.|[^"\\])*"', blank, text, flags=re.S)
    return re.sub(r"'(\\.[^']*|[^\\'\n])'", lambda m: "_" * len(m.group(0)), text)


TEST = re.compile(r"#\[cfg\((?:all\()?(?:test|check_model|doctest)\b[^\]]*\]")


def without_tests(text):
    """The text without items of tests, and the names of modules that are tests."""
    m, spans, modules = masked(text), [], []
    for k in TEST.finditer(m):
        if spans and k.start() < spans[-1][1]:
            continue
        j = k.end()
        while (attribute := re.match(r"\s*#\[[^\]]*\]", m[j:])):
            j += attribute.end()
        p, depth, end = j, 0, len(m)
        while p < len(m):
            ch = m[p]
            if ch in "([":
                depth += 1
            elif ch in ")]":
                depth -= 1
            elif ch in ";," and depth == 0:
                end = p + 1
                break
            elif ch == "{" and depth == 0:
                braces, p = 1, p + 1
                while p < len(m) and braces:
                    braces += (m[p] == "{") - (m[p] == "}")
                    p += 1
                end = p
                break
            p += 1
        module = re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", m[j:end])
        if module:
            modules.append(module.group(1))
        spans.append((k.start(), end))
    out, last = [], 0
    for a, b in spans:
        out.append(text[last:a])
        last = b
    out.append(text[last:])
    return "".join(out), modules


def lines(text):
    return sum(1 for line in text.split("\n") if line.strip())


class Package:
    def __init__(self, name, folder):
        self.name, self.src = name, os.path.join(folder, "src")
        self.code, self.files, self.lua = {}, {}, 0
        tests = set()
        found = []
        for path, _, names in os.walk(self.src):
            for name in sorted(names):
                whole = os.path.join(path, name)
                if name.endswith(".lua"):
                    self.lua += sum(1 for l in open(whole, encoding="utf8") if l.strip() and not l.strip().startswith("--"))
                if not name.endswith(".rs"):
                    continue
                text = open(whole, encoding="utf8").read()
                if re.search(r"^#!\[cfg\(test\)\]", text, re.M):
                    continue
                code, modules = without_tests(without_comments(text))
                stem = name[:-3]
                at = path if stem in ("mod", "lib", "main") else os.path.join(path, stem)
                tests |= {os.path.join(at, module) for module in modules}
                found.append((whole, code))
        for whole, code in found:
            stem = whole[:-3]
            stem = stem[:-4] if stem.endswith("/mod") else stem
            inside = whole[len(self.src):]
            if any(stem == t or stem.startswith(t + "/") for t in tests) or re.search(r"(^|/)tests(/|\.rs$)", inside):
                continue
            self.code[whole] = lines(code)
            self.files[whole] = code
        self.modules = {self.module(f): f for f in self.files}
        self.names = {}

    def module(self, file):
        parts = os.path.relpath(file, self.src)[:-3].split("/")
        return tuple(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)

    def resolve(self, path):
        path = tuple(path)
        while path:
            if path in self.modules:
                return self.modules[path]
            path = path[:-1]
        return self.modules.get(())


def expand(prefix, body):
    depth, part, parts = 0, "", []
    for c in body.strip():
        depth += (c == "{") - (c == "}")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    if part.strip():
        parts.append(part)
    for p in parts:
        p = p.strip()
        group = re.match(r"([\w:]*?)(?:::)?\{(.*)\}$", p, re.S)
        if group:
            yield from expand(prefix + [x for x in group.group(1).split("::") if x], group.group(2))
        else:
            yield prefix + [x.strip() for x in p.split(" as ")[0].split("::") if x.strip()]


def packages():
    out = [Package("tower_ratelimit", ".")]
    folders = sorted(os.listdir("crates")) if os.path.isdir("crates") else []
    for folder in [os.path.join("crates", f) for f in folders]:
        manifest = os.path.join(folder, "Cargo.toml")
        if os.path.isdir(os.path.join(folder, "src")) and os.path.exists(manifest):
            name = re.search(r'^name = "([^"]+)"', open(manifest).read(), re.M).group(1)
            out.append(Package(name.replace("-", "_"), folder))
    return out


LIBRARY = ("tower_ratelimit", "core", "store", "layer", "client_ip", "shared", "concurrency", "budgets", "rules", "calendar", "cpu_counter", "postgres")


def is_library(package):
    return package.name.removeprefix("tower_ratelimit_") in LIBRARY


def reexports(everything):
    """Names that the root of each package hands on, with the packages and files that define them."""
    for _ in range(4):
        for package in everything.values():
            root = package.modules.get(())
            if not root:
                continue
            for use in re.finditer(r"\bpub use ([^;]+);", package.files[root]):
                for path in expand([], use.group(1)):
                    if path and path[0] in everything and everything[path[0]] is not package:
                        other = everything[path[0]]
                        if path[-1] == "*":
                            package.names.update(other.names)
                        elif len(path) > 1 and path[1] in other.names:
                            package.names[path[-1]] = other.names[path[1]]
                        elif (file := other.resolve(path[1:])):
                            package.names[path[-1]] = (other, file)
                        continue
                    inner = path[1:] if path and path[0] in ("self", "crate") else path
                    file = package.resolve(inner)
                    if file and file != root and path[-1] != "*":
                        package.names[path[-1]] = (package, file)


def uses(package, file, everything):
    text, me, out = package.files[file], package.module(file), set()
    for use in re.finditer(r"(\bpub(?:\([^)]*\))? )?\buse ([^;]+);", text):
        if use.group(1) and me == ():
            continue
        for path in expand([], use.group(2)):
            if not path:
                continue
            if path[0] == "crate":
                base = path[1:]
            elif path[0] == "self":
                base = list(me) + path[1:]
            elif path[0] == "super":
                up, rest = list(me), list(path)
                while rest and rest[0] == "super":
                    up, rest = up[:-1], rest[1:]
                base = up + rest
            elif path[0] in everything and everything[path[0]] is not package:
                other = everything[path[0]]
                if len(path) > 1 and path[1] in other.names:
                    out.add(other.names[path[1]])
                elif (found := other.resolve(path[1:])):
                    out.add((other, found))
                continue
            elif me + (path[0],) in package.modules:
                base = list(me) + path
            else:
                continue
            if len(base) == 1 and base[0] in package.names:
                out.add(package.names[base[0]])
                continue
            found = package.resolve(base)
            if found:
                out.add((package, found))
    return out


def reading(start, everything, leave=None):
    seen, todo = set(), list(start)
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        for found in uses(at[0], at[1], everything):
            if found not in seen and not (leave and re.search(leave, found[1])):
                todo.append(found)
    return seen


def find(everything, pattern):
    return [(p, f) for p in everything.values() for f in p.files if re.search(pattern, f)]


def inner_items(package, handed_on):
    text = "\n".join(package.files.values())
    count = len(re.findall(r"^\s*pub\((?:crate|super|in [^)]*)\)", text, re.M))
    if package.name != "tower_ratelimit" and is_library(package):
        names = re.findall(r"^pub (?:const |async |unsafe )*(?:fn|struct|enum|trait|type|const|static|union) (\w+)", text, re.M)
        count += sum(1 for name in names if name not in handed_on)
    return count


def held_to_ceilings(sizes):
    """Compares the sizes of each table of the ceilings with them. Far below one is printed, and no fault."""
    with open(CEILINGS, "rb") as file:
        ceilings = tomllib.load(file)
    faults = [f"{CEILINGS} has no table [{table}]" for table in sizes.keys() - ceilings.keys()]
    faults += [f"{CEILINGS}: no size is known as [{table}]" for table in ceilings.keys() - sizes.keys()]
    for table in sizes.keys() & ceilings.keys():
        unit = table.replace("-", " ")
        for name in sizes[table] | ceilings[table]:
            size, ceiling = sizes[table].get(name), ceilings[table].get(name)
            if ceiling is None:
                faults.append(f"{CEILINGS}: [{table}] has no ceiling for {name}, which has {size}")
            elif size is None:
                faults.append(f"{CEILINGS}: there is no package {name}, which has a ceiling in [{table}]")
            elif size > ceiling:
                faults.append(f"{name} has {size} {unit}, and its ceiling in {CEILINGS} is {ceiling}: raise it in a commit that says why")
            elif size < ceiling * 98 // 100:
                print(f"{name} has {size} {unit}, far below its ceiling of {ceiling}: lower it in {CEILINGS}")
    return faults


def write_ceilings(sizes):
    with open(CEILINGS, encoding="utf8") as file:
        remark = "".join(line for line in file if line.startswith("#"))
    tables = ["".join([f"\n[{table}]\n", *(f"{name} = {size}\n" for name, size in rows.items())]) for table, rows in sizes.items()]
    with open(CEILINGS, "w", encoding="utf8") as file:
        file.write(remark + "".join(tables))


def main():
    everything = {p.name: p for p in packages()}
    reexports(everything)
    handed_on = set(everything["tower_ratelimit"].names)
    print(f"{'package':32}{'files':>6}{'code':>8}{'< 60':>6}{'Lua':>6}{'pub':>6}{'inner pub':>11}{'types':>7}")
    sums, library = [0] * 7, [0] * 7

    def show(name, row):
        print(f"{name:32}{row[0]:6}{row[1]:8}{row[2]:6}{row[3]:6}{row[4]:6}{row[5]:11}{row[6]:7}")
    for p in everything.values():
        text = "\n".join(p.files.values())
        row = [len(p.files), sum(p.code.values()), sum(1 for n in p.code.values() if n < 60), p.lua,
               len(re.findall(r"^\s*pub (?!use|mod)", text, re.M)), inner_items(p, handed_on),
               len(re.findall(r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum) ", text, re.M))]
        show(p.name, row)
        sums = [a + b for a, b in zip(sums, row)]
        if is_library(p):
            library = [a + b for a, b in zip(library, row)]
    show("library", library)
    show("sum", sums)
    if "--wings" in sys.argv:
        for p in everything.values():
            wings = {}
            for f, n in p.code.items():
                parts = os.path.relpath(f, p.src).split("/")
                key = parts[0] if len(parts) > 1 else "(top)"
                a, b = wings.get(key, (0, 0))
                wings[key] = (a + 1, b + n)
            print(p.name, ", ".join(f"{k} {b} in {a}" for k, (a, b) in sorted(wings.items(), key=lambda x: -x[1][1])))
    layer = find(everything, r"^crates/layer/src/rate_limit/(layer)\.rs$")
    local = find(everything, r"^crates/core/src/limiter/local/(mod)\.rs$")
    shared = find(everything, r"^crates/(shared/src/builder|store/src/redis/builder)\.rs$")
    for name, start in (("layer", layer), ("local limiter", local), ("Redis limiter", shared)):
        if not start:
            sys.exit(f"no file is known as the {name}: mend its pattern in size.py")
    near = r"^crates/(rules|rulefile|service|gateway|envoy|replay|cli|client|testkit|playground)/"
    far = near + r"|^crates/(shared|store)/"
    one, two = reading(local, everything, far), reading(layer + local, everything, far)
    three = reading(shared + layer + local, everything, near)

    def size(s):
        return sum(p.code[f] for p, f in s)
    print(f"to read: the local limiter alone {size(one)} lines in {len(one)} files; with its layer {size(two)} in {len(two)}; "
          f"Redis on top {size(three - two)} in {len(three - two)}")
    sizes = {"lines-of-code": {p.name: sum(p.code.values()) for p in everything.values()},
             "inner-public-items": {"library": library[5]}}
    if "--write" in sys.argv:
        write_ceilings(sizes)
    if faults := held_to_ceilings(sizes):
        sys.exit("\n".join(faults))


main()
