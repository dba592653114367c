"""The npm packages of the tests: installed once, beside the program, from tests/http/clients/package-lock.json."""
import fcntl
import os
import shutil
import subprocess

from harness import PROGRAM


def install():
    """The folder with node_modules; None, with a line that says why, where node or the registry is missing."""
    here = os.path.abspath("tests/http/clients")
    folder = os.path.join(os.path.dirname(os.path.abspath(PROGRAM)), "http-clients")
    if not shutil.which("node") or not shutil.which("npm"):
        print("SKIPPED: node and npm are not installed (tools/install-deps clients); the tests with npm's openai and ajv did not run")
        return None
    with open(os.path.join(here, "package-lock.json"), "rb") as lock:
        wanted = lock.read()
    stamp = os.path.join(folder, "installed")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w") as lock:  # two tests may come here at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder if ready(here, folder, stamp, wanted) else None


def ready(here, folder, stamp, wanted):
    if os.path.exists(stamp) and open(stamp, "rb").read() == wanted:
        return True
    for name in ["package.json", "package-lock.json"]:
        shutil.copy(os.path.join(here, name), folder)
    result = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, text=True, timeout=240,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        print("SKIPPED: npm can't install openai and ajv here; the tests with them did not run:")
        print("\n".join(result.stdout.splitlines()[:3]))
        return False
    with open(stamp, "wb") as out:
        out.write(wanted)
    return True
