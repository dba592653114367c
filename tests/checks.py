"""Checks that are counted, for tests of the program's commands: a failure is said at once and the rest goes on; at the
end the exit status says whether there was one. Tests import it from the repository's root (sys.path: "tests")."""
import sys
import time

failures = 0


def check(condition, text):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {text}", flush=True)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def finish(name):
    print(f"{name}: {failures} failures")
    sys.exit(1 if failures else 0)


def run_all(name, members):
    """Runs every test_... of a module's globals(), says how long each took, and ends the program."""
    tests = [value for key, value in sorted(members.items()) if key.startswith("test_")]
    for test in tests:
        start = time.monotonic()
        test()
        print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)
    finish(f"{name}, {len(tests)} tests")
