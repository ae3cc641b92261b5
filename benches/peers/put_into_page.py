"""Puts a file between the marks of a page: put_into_page.py PAGE NAME FILE, with marks `<!-- NAME -->` and
`<!-- /NAME -->`."""

import pathlib
import re
import sys

page, name, file = sys.argv[1:]
page = pathlib.Path(page)
text = page.read_text(encoding="utf-8")
rows = f"<!-- {name} -->\n{pathlib.Path(file).read_text(encoding='utf-8')}<!-- /{name} -->"
found = re.compile(f"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
if not found.search(text):
    sys.exit(f"{page} has no place for a {name}")
page.write_text(found.sub(lambda _: rows, text), encoding="utf-8")
