"""Draws the packages of this workspace and what each imports, from their manifests and the first line of their lib.rs.

`python3 scripts/draw_crates.py` prints the picture; `--write` puts it into docs/architecture.md, and `--check` compares it
with the picture there. A package stands above those that it imports. A column is an arrow: it begins at the packages that
import (`●`), and ends at the imported one (`▼`). An import that follows from others is left out."""

import pathlib, re, sys, tomllib

PAGE = pathlib.Path("docs/architecture.md")
PICTURE = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)


def packages():
    """Each package: its folder, what its library is, and the packages that it imports."""
    manifests = [path.parent for path in (pathlib.Path("Cargo.toml"), *sorted(pathlib.Path("crates").glob("*/Cargo.toml")))]
    found = {}
    for folder in manifests:
        manifest = tomllib.loads((folder / "Cargo.toml").read_text(encoding="utf-8"))
        tables = [manifest, *manifest.get("target", {}).values()]
        imported = [value for table in tables for value in table.get("dependencies", {}).values() if "path" in value]
        about = " ".join(re.match(r"(?://! .*\n)+", (folder / "src/lib.rs").read_text(encoding="utf-8"))[0].split("\n//! "))
        about = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", about.removeprefix("//! ")).replace("`", "")
        about = re.split(r"[:.](?:\s|$)", about)[0]
        found[folder.resolve()] = (about, {(folder / value["path"]).resolve() for value in imported})
    return found


def picture():
    found = packages()
    reached = {}

    def reach(folder):
        """All packages that a package imports, directly or not."""
        if folder not in reached:
            reached[folder] = set().union(*({other} | reach(other) for other in found[folder][1]))
        return reached[folder]

    # The number of packages below decides the row, so that each stands above all that it imports.
    rows = sorted(found, key=lambda folder: (-len(reach(folder)), folder.name))
    direct = {one: found[one][1] - set().union(*(reach(other) for other in found[one][1])) for one in rows}
    columns = [folder for folder in rows if any(folder in others for others in direct.values())]
    root = pathlib.Path().resolve()
    names = {folder: "tower-ratelimit" if folder == root else folder.name for folder in rows}
    width = max(map(len, names.values()))
    for at, folder in enumerate(rows):
        marks = []
        for column in columns:
            begun = any(column in direct[above] for above in rows[:at])
            if column in direct[folder]:
                marks.append("●")
            elif column == folder:
                marks.append("▼")
            else:
                marks.append("│" if begun and rows.index(column) > at else " ")
        yield f"{names[folder]:{width}}  {' '.join(marks)}  {found[folder][0]}\n"


def main():
    drawn = "".join(picture())
    page = PAGE.read_text(encoding="utf-8")
    if "--write" in sys.argv:
        PAGE.write_text(PICTURE.sub(lambda _: drawn, page, count=1), encoding="utf-8")
    elif "--check" not in sys.argv:
        print(drawn, end="")
    elif PICTURE.search(page)[0] != drawn:
        sys.exit(f"{PAGE}: the picture is not that of the manifests: python3 scripts/draw_crates.py --write")


main()
