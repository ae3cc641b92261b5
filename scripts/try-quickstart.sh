#!/usr/bin/env bash
# Follows docs/quickstart.md from an empty folder: runs its commands in its order, writes the file that it shows, and
# compares what curl prints. Two things differ: the crate comes from this checkout, and the port is a free one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/install_requirements.sh

need_rust
need python3 python3
need curl curl

python3 - "$PWD" <<'PYTHON'
import os, pathlib, re, socket, subprocess, sys, tempfile, textwrap, time

crate = pathlib.Path(sys.argv[1])
os.environ.setdefault("CARGO_TARGET_DIR", str(crate / "target"))
page = (crate / "docs/quickstart.md").read_text(encoding="utf-8")
blocks = [
    (kind, textwrap.dedent(text))
    for kind, text in re.findall(r"^ *```([\w,]+)\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)
]
kinds = [kind for kind, _ in blocks]
assert kinds == ["sh", "sh", "rust,no_run", "sh", "sh", "text"], kinds
new, add, program, run, ask, expected = [text for _, text in blocks]

example = (crate / "examples/quickstart/src/main.rs").read_text(encoding="utf-8")
readme = (crate / "README.md").read_text(encoding="utf-8")
assert program == example, "docs/quickstart.md and examples/quickstart differ"
for kind, block in ("rust,no_run", example), ("sh", add):
    assert f"```{kind}\n{block}```\n" in readme, f"README.md has another block of {kind} than docs/quickstart.md"
assert ask.split("'")[-2] in readme, "README.md sends other requests than docs/quickstart.md"

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = str(probe.getsockname()[1])
here = lambda text: text.replace("127.0.0.1:3000", "127.0.0.1:" + port)
local = add.replace("cargo add tower-ratelimit", f"cargo add --path '{crate}'")
assert local != add and here(program) != program and here(ask) != ask

with tempfile.TemporaryDirectory() as folder:
    # `cd` of the first block holds for the others, as in a terminal.
    script = f"set -euo pipefail\ncd '{folder}'\n{new}{local}cat > src/main.rs\n"
    # The versions that everything else was tested with.
    lock = f"cp '{crate}/Cargo.lock' .\n"
    subprocess.run(["bash", "-c", script + lock], input=here(program), text=True, check=True)
    home = pathlib.Path(folder, "limited")
    start = time.monotonic()
    subprocess.run(["cargo", "build", "--quiet"], cwd=home, check=True)
    built = time.monotonic() - start
    server = subprocess.Popen(["bash", "-c", "exec " + run.strip()], cwd=home)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", int(port)), 1).close()
                break
            except OSError:
                time.sleep(0.1)
                assert server.poll() is None, "the server has ended"
        asked = subprocess.run(["bash", "-c", here(ask)], capture_output=True, text=True, check=True)
    finally:
        server.terminate()
        server.wait()

rows = lambda text: [tuple(map(int, line.split())) for line in text.splitlines()]
print(f"built in {built:.0f} s; curl printed {rows(asked.stdout)}")
(passed, ok), (denied, too_many) = rows(expected)
statuses = {status: sum(count for count, other in rows(asked.stdout) if other == status) for status in (ok, too_many)}
assert statuses[ok] + statuses[too_many] == passed + denied, asked.stdout
# A machine that takes long over thirty requests refills meanwhile.
assert passed <= statuses[ok] < passed + denied, asked.stdout
PYTHON
