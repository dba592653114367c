#!/usr/bin/env python3
"""`run` and `chat` with a model that is not here yet: the question at a terminal and what follows each answer; no
question and no request without one. Usage: test_pull_offer.py PROGRAM"""
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

sys.path[:0] = ["tests", "tests/cli"]
from checks import check, read, run_all
from hub_home import HubHome
from hub_server import COMMIT, Hub, Repo, forever, status

PROGRAM = os.path.abspath(sys.argv[1])
MODEL = "models/fairytales"
TALES, SHARDED = "tests/fairytales", "tests/sharded"
LIMIT = 120
hub = Hub()
NEEDED = ["config.json", "generation_config.json", "kv_config.json", "model.safetensors", "tokenizer.json",
          "tokenizer_config.json"]
FILES = {name: read(f"{MODEL}/{name}") for name in NEEDED} | {"README.md": b"# Tales"}
BYTES = sum(len(FILES[name]) for name in NEEDED)


class Home(HubHome):
    """A hub as new; and the program at a terminal."""

    def __init__(self):
        super().__init__(hub)

    def __enter__(self):
        hub.reset()
        hub.repos[TALES] = Repo(FILES, large=["model.safetensors", "tokenizer.json"])
        return super().__enter__()

    def environment(self, env=None):
        return super().environment({"TERM": "xterm", "NO_COLOR": "1", "MEGADECODE_THREADS": "1",
                                    "XDG_STATE_HOME": self.dir} | (env or {}))

    def files(self):
        """Everything but folders of locks."""
        return [os.path.join(path, name) for path, _, names in os.walk(self.dir) for name in names
                if ".locks" not in path]

    def terminal(self, *args, answers=(), env=None):
        """Runs at a pseudo-terminal. `answers`: pairs of text waited for and what is then typed. Exit status, output."""
        pid, fd = pty.fork()
        if pid == 0:
            try:
                os.execve(PROGRAM, [PROGRAM, *args], self.environment(env))
            finally:
                os._exit(127)
        out, seen, answers = b"", 0, list(answers)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if answers and answers[0][0] in out[seen:]:
                seen = out.index(answers[0][0], seen) + len(answers[0][0])
                os.write(fd, answers.pop(0)[1])
            if not select.select([fd], [], [], 0.2)[0]:
                continue
            try:
                piece = os.read(fd, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
        else:
            os.kill(pid, signal.SIGKILL)
            check(False, f"{args}: hangs: {out[-500:]!r}")
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(fd)
        check(not answers, f"{args}: never asked {answers}: {out!r}")
        return code, out.decode("utf-8", "replace").replace("\r\n", "\n")


RUN = ["run", "-m", TALES, "-p", "Once upon a time", "-n", "4", "--temp", "0"]
TEXT = subprocess.run([PROGRAM, "run", "-m", MODEL, *RUN[3:]], capture_output=True, check=True).stdout.decode()
QUESTION = f"download {len(NEEDED)} files, {BYTES * 1e-6:.1f} MB? [Y/n] "


def test_yes():
    for answer in [b"\n", b"y\n", b"maybe\nyes\n"]:
        with Home() as home:
            asked = [(b"[Y/n] ", part + b"\n") for part in answer[:-1].split(b"\n")]
            code, out = home.terminal(*RUN, answers=asked)
            check(code == 0 and out.endswith("Once upon a time" + TEXT), f"{answer}: {code} {out[-300:]!r}")
            check(out.count(QUESTION) == len(asked), f"{answer}: {QUESTION!r} in {out[:400]!r}")
            folder = home.path(TALES, "snapshots", COMMIT)
            check(sorted(os.listdir(folder)) == NEEDED, f"{os.listdir(folder)}")
            hub.log.clear()
            code, out = home.terminal(*RUN)
            check(code == 0 and "download" not in out and not hub.log, f"again: {out!r} {hub.log}")


def test_chat():
    with Home() as home:
        code, out = home.terminal("chat", "-m", TALES, "-n", "4",
                                  answers=[(b"[Y/n] ", b"\n"), (b"\n> ", b"Hello\n"), (b"\n> ", b"\x04")])
        check(code == 0 and QUESTION in out and "tokens/s" in out, f"chat: {code} {out!r}")
    with Home() as home:
        code, out = home.terminal("chat", "-m", TALES, answers=[(b"[Y/n] ", b"n\n")])
        check(code == 1 and f"megadecode pull {TALES}" in out and home.files() == [], f"chat: {code} {out!r}")


def test_no():
    for answer in [b"n\n", b"no\n", b"\x04", b"\x03"]:
        with Home() as home:
            code, out = home.terminal(*RUN, answers=[(b"[Y/n] ", answer)])
            check(code == 1 and f"not downloaded; 'megadecode pull {TALES}'" in out, f"{answer}: {code} {out!r}")
            check(home.files() == [] and not os.path.exists(home.path(TALES)),
                  f"{answer}: left {home.files()}")
            check(not hub.requests("GET /tests/*"), f"{answer}: files were fetched: {hub.log}")
    with Home() as home:  # the index of the weights has to be read before the question; it does not stay
        shard = "model-00001-of-00001.safetensors"
        hub.repos[SHARDED] = Repo({"config.json": b"{}", shard: b"x" * 9000,
                                   "model.safetensors.index.json": json.dumps({"weight_map": {"t": shard}}).encode()})
        code, out = home.terminal("run", "-m", SHARDED, "-p", "x", answers=[(b"[Y/n] ", b"n\n")])
        check(code == 1 and home.files() == [], f"sharded: {code} {out!r} {home.files()}")


def test_nobody_to_ask():
    for args, stdin in [(RUN, None), (RUN[:3], b"a prompt\n"), (["chat", "-m", TALES], b"Hello\n")]:
        with Home() as home:
            done = subprocess.run([PROGRAM, *args], input=stdin, stdin=None if stdin else subprocess.DEVNULL,
                                  capture_output=True, timeout=LIMIT, env=home.environment())
            check(done.returncode == 1 and done.stdout == b"", f"{args}: {done}")
            check(f"'megadecode pull {TALES}'".encode() in done.stderr, f"{args}: {done.stderr}")
            check(not hub.log and home.files() == [], f"{args}: the hub was asked: {hub.log}")
    with Home() as home:
        code, out = home.terminal(*RUN, "--json")
        check(code == 1 and "[Y/n]" not in out and f"megadecode pull {TALES}" in out, f"--json: {out!r}")
        error = json.loads([line for line in out.split("\n") if line.startswith("{")][0])["error"]
        check(error["status"] == "not_found" and not hub.log, f"--json: {error} {hub.log}")
        code, out = home.terminal(*RUN, env={"HF_HUB_OFFLINE": "1"})
        check(code == 1 and "[Y/n]" not in out and not hub.log, f"offline: {out!r}")
        code, out = home.terminal("run", "-m", "no/such/folder", "-p", "x")
        check(code == 1 and "no such folder" in out and not hub.log, f"a path: {out!r}")


def test_failures():
    with Home() as home:
        code, out = home.terminal("run", "-m", "tests/nothing", "-p", "x")
        check(code == 1 and "[Y/n]" not in out and "tests/nothing" in out, f"no such model: {out!r}")
    with Home() as home:
        hub.faults["GET /api/*"] = [forever(status(500))]
        code, out = home.terminal(*RUN)
        check(code == 1 and "500" in out, f"a hub that fails: {out!r}")


run_all("test_pull_offer", globals())
