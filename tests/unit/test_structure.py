#!/usr/bin/env python3
"""The folder rule, the size of files and other promises about the sources, held by reading them.

Allowed includes between folders of src/ (docs/ARCHITECTURE.md): a file may include its own folder, the public header and
the folders listed for it. Prints every violation and exits 1 if there is one.
"""
import os
import re
import sys

ALLOWED = {
    "base": set(),
    "model": {"base"},
    "plan": {"base", "model"},
    "backend": {"base", "model", "plan"},
    "text": {"base"},
    "chat": {"base", "text"},
    "gen": {"base"},
    "session": {"base", "model", "plan", "backend", "text", "gen"},
    "server": {"base", "chat"},
    "cli": {"base", "chat", "server"},
}
BACKENDS = {"reference", "cpu", "cuda"}
MAX_LINES = 600
SOURCE = re.compile(r"\.(c|h|cuh|py|sh)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def violations_of(path):
    parts = path.split("/")
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    if len(lines) - 1 > MAX_LINES and not path.startswith("tests/data/"):
        yield f"{path}: {len(lines) - 1} lines, at most {MAX_LINES}"
    if parts[0] != "src" or len(parts) < 3:
        return
    folder = parts[1]
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1).split("/")
        if target == ["megadecode.h"] or len(target) == 1:
            continue
        where = f"{path}:{number}: includes {match.group(1)}"
        if target[0] != folder and target[0] not in ALLOWED.get(folder, set()):
            yield f"{where}: {folder} may include {sorted(ALLOWED.get(folder, set()))} only"
        if folder == "backend" and target[0] == "backend" and len(target) > 2:
            own = parts[2] if len(parts) > 3 else None
            if target[1] in BACKENDS and target[1] != own:
                yield f"{where}: backends do not include each other"


def unknown_folders():
    for folder in sorted(os.listdir("src")):
        if os.path.isdir(f"src/{folder}") and folder not in ALLOWED:
            yield f"src/{folder}: a folder the rule does not know"


def main():
    found = list(unknown_folders())
    count = 0
    for top in ("src", "include", "tests", "tools", "examples", "bench"):
        for root, _, names in os.walk(top):
            for name in sorted(names):
                if SOURCE.search(name):
                    count += 1
                    found += violations_of(f"{root}/{name}")
    for line in found:
        print(line)
    print(f"structure: {count} files, {len(found)} violations")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
