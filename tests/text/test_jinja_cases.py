#!/usr/bin/python3
"""The frozen jinja_cases.json is what make_jinja_cases.py gives with the Jinja2 that is installed here."""
import json
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).parent
try:
    import jinja2  # noqa: F401
except ImportError:
    print("skipped: python3-jinja2 is not installed")
    sys.exit(0)

made = json.loads(subprocess.run([sys.executable, here / "make_jinja_cases.py"], check=True, capture_output=True).stdout)
kept = json.loads((here / "jinja_cases.json").read_text())
wrong = 0
for new, old in zip(made["cases"], kept["cases"]):
    # The words of an error are Jinja2's own and differ between its versions.
    same = new["template"] == old["template"] and new.get("expected") == old.get("expected")
    if not same:
        wrong += 1
        print(f"differs: {new['template']!r}\n  now:  {new.get('expected')!r}\n  kept: {old.get('expected')!r}")
if len(made["cases"]) != len(kept["cases"]) or made["context"] != kept["context"]:
    wrong += 1
    print("differs: number of cases or context; run make_jinja_cases.py again")
print(f"{len(made['cases'])} cases, {wrong} differ")
sys.exit(wrong != 0)
