#!/usr/bin/env python3
"""`megadecode pull` against a hub of its own (hub_server.py): the cache it leaves, and every answer that can go wrong.

The hashes, the cache layout and the words of the errors are this file's own, made from the files served.
"""
import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path[:0] = ["tests", "tests/cli"]
from checks import check, read, run_all
from hub_home import HubHome
from hub_server import (COMMIT, Hub, Repo, cut_after, document, endless, forever, hang, many_headers,
                        redirect_to_itself, sha256, status)

PROGRAM = os.path.abspath(sys.argv[1])
MODEL = "models/fairytales"
NEEDED = ["config.json", "generation_config.json", "kv_config.json", "model.safetensors",
          "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"]
TALES, SMALL = "tests/fairytales", "tests/small"
hub = Hub()


def pattern_bytes(n, seed):
    return bytes((seed * 31 + i * i) & 255 for i in range(251)) * (n // 251) + bytes(n % 251)


def serve():
    """The two repositories, as new: the shipped model, and a made-up one that is quick to send."""
    hub.reset()
    tales = {name: read(f"{MODEL}/{name}") for name in os.listdir(MODEL)}
    tales |= {"README.md": b"# Tales", ".gitattributes": b"*", "onnx/model.onnx": b"o" * 5000, "extra.bin": b"b" * 99}
    hub.repos[TALES] = Repo(tales, large=["model.safetensors", "tokenizer.json"])
    shards = {f"model-{i:05}-of-00006.safetensors": pattern_bytes(300000 + i, i) for i in range(1, 7)}
    index = {"metadata": {}, "weight_map": {f"t{i}": name for i, name in enumerate(list(shards) * 2)}}
    small = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(), **shards}
    small["consolidated.safetensors"] = small["model-extra.safetensors"] = b"c" * 70000
    hub.repos[SMALL] = Repo(small, large=shards)


class Home(HubHome):
    """With `pull` and what it left."""

    def __init__(self):
        super().__init__(hub)

    def __enter__(self):
        serve()
        return super().__enter__()

    def call(self, *args, env=None, timeout=120):
        done = subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
                              env=self.environment(env), check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def start(self, repo=SMALL, *args):
        return subprocess.Popen([PROGRAM, "pull", repo, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment(), text=True)

    def pull(self, repo=SMALL, *args, env=None):
        code, out, err = self.call("pull", repo, "--json", *args, env=env)
        check(code == 0, f"pull {repo} {args}: exit {code}: {err}")
        return json.loads(out) if code == 0 else {"files": []}

    def refused(self, *say, repo=SMALL, args=(), code=1, env=None):
        found, out, err = self.call("pull", repo, *args, env=env)
        check(found == code, f"exit {found}, expected {code}: {out!r} {err!r}")
        check(out == "", f"wrote {out!r}")
        check(err.count("\n") == (1 if code == 1 else err.count("\n")), f"one line: {err!r}")
        for text in say:
            check(text in err, f"{text!r} is not in {err!r}")
        check(not os.path.exists(self.path(repo, "snapshots", COMMIT)), f"{say}: an unfinished snapshot is there")
        return err

    def check_complete(self, repo, names):
        source = hub.repos[repo]
        folder = self.path(repo, "snapshots", COMMIT)
        check(sorted(os.listdir(folder)) == sorted(names), f"{folder}: {os.listdir(folder)}")
        for name in names:
            link = os.path.join(folder, name)
            check(os.readlink(link) == f"../../blobs/{source.etag(name)}", f"{name} -> {os.readlink(link)}")
            check(read(link) == source.files[name], f"{name}: other bytes")
        blobs = os.listdir(self.path(repo, "blobs"))
        check(sorted(blobs) == sorted({source.etag(name) for name in names}), f"blobs: {blobs}")


SMALL_NEEDED = ["config.json", "model.safetensors.index.json"] + [f"model-{i:05}-of-00006.safetensors"
                                                                  for i in range(1, 7)]
SHARD = SMALL_NEEDED[2]
CDN_SHARD = f"GET /{SMALL}/{SHARD}"


def state(result, name):
    return {file["name"]: file["state"] for file in result["files"]}.get(name)


# ---- what works ----------------------------------------------------------------------------------------------------


def test_plain():
    with Home() as home:
        hub.moved = "tokenizer_config.json"  # by a redirect on the same host
        code, out, err = home.call("pull", TALES)
        check(code == 0, f"pull: {code} {err}")
        check(out == home.path(TALES, "snapshots", COMMIT) + "\n", f"stdout: {out}")
        check(err.count("\n") == 1 and "7 files" in err and "\x1b" not in err and "\r" not in err, f"stderr: {err!r}")
        home.check_complete(TALES, NEEDED)
        check(read(home.path(TALES, "refs", "main")) == COMMIT.encode(), "refs/main")
        check(not any("Authorization" in entry[2] for entry in hub.log), "a token out of nowhere")
        code, out, err = home.call("inspect", "-m", TALES, "--json")
        check(code == 0 and json.loads(out)["layers"] == 6, f"inspect -m: {code} {err}")
        hub.log.clear()
        code, out, err = home.call("pull", TALES)
        check(code == 0 and "were here already" in err, f"again: {err}")
        check(not hub.requests("GET /tests/*") and not hub.requests("GET /moved/*"), "fetched again")


def test_shards_of_the_index():
    with Home() as home:
        result = home.pull()
        home.check_complete(SMALL, SMALL_NEEDED)
        total = sum(len(hub.repos[SMALL].files[name]) for name in SMALL_NEEDED)
        check(result["bytes"] == total and result["received_bytes"] == total, f"{result['bytes']} of {total}")
        check(result["commit"] == COMMIT and result["repo"] == SMALL and result["revision"] == "main", "names")
        check({file["state"] for file in result["files"]} == {"downloaded"}, "states")


def test_several_at_once():
    for jobs in [1, 3]:
        with Home() as home:
            hub.chunk_delay = 0.02
            home.pull(SMALL, "-j", str(jobs))
            check(hub.most_active == jobs, f"-j {jobs}: {hub.most_active} at once")


def test_revisions():
    other = "f" * 40
    with Home() as home:
        hub.repos[SMALL].revisions["feature/x.1"] = COMMIT
        home.pull(SMALL, "--revision", "feature/x.1")
        check(read(home.path(SMALL, "refs", "feature", "x.1")) == COMMIT.encode(), "the branch's ref")
        check(hub.requests("GET */revision/feature%2Fx.1"), "the revision in the request")
        home.pull(SMALL, "--revision", COMMIT)
        check(not os.path.exists(home.path(SMALL, "refs", COMMIT)), "a ref for a commit")
        hub.repos[SMALL].commit = hub.repos[SMALL].revisions["main"] = hub.repos[SMALL].revisions[other] = other
        home.pull()
        check(sorted(os.listdir(home.path(SMALL, "snapshots"))) == sorted([COMMIT, other]), "two snapshots")


def test_token():
    with Home() as home:
        hub.repos[SMALL].token = "hf_secret"
        home.refused("access is given on request", f"{hub.url}/{SMALL}", "HF_TOKEN")
        home.pull(SMALL, env={"HF_TOKEN": "hf_secret"})
        sent = {entry[3] for entry in hub.log if "Authorization" in entry[2]}
        check(sent == {hub.servers[0].server_port}, f"the token went to ports {sent}")
        check(len(hub.requests("GET /tests/small/*.safetensors")) >= 6, "nothing came from the second server")
    for where in ["token", "elsewhere"]:
        with Home() as home:
            hub.repos[SMALL].token = "hf_secret"
            with open(os.path.join(home.dir, where), "w", encoding="ascii") as file:
                file.write("hf_secret\n")
            home.pull(SMALL, env={"HF_TOKEN_PATH": os.path.join(home.dir, where)} if where != "token" else None)
    with Home() as home:
        home.refused("HF_TOKEN", env={"HF_TOKEN": "a\r\nX-Evil: 1"})
        check(not hub.log, "a request with a token that is none")


# ---- what is cut ---------------------------------------------------------------------------------------------------


def test_cut_connections():
    with Home() as home:
        hub.faults[CDN_SHARD] = [cut_after(100000), cut_after(0), cut_after(70000)]
        result = home.pull()
        home.check_complete(SMALL, SMALL_NEEDED)
        ranges = [entry[2].get("Range") for entry in hub.requests(CDN_SHARD)]
        check(ranges == [None, "bytes=100000-", "bytes=100000-", "bytes=170000-"], f"ranges: {ranges}")
        check(state(result, SHARD) == "downloaded", "a cut in one pull is no resumed file")
    with Home() as home:
        hub.faults[CDN_SHARD] = [forever(cut_after(0))]
        home.refused(SHARD)
        check(len(hub.requests(CDN_SHARD)) == 5, f"{len(hub.requests(CDN_SHARD))} tries")
        hub.faults.clear()
        hub.faults["GET /api/*"] = [hang(0), status(503)]
        home.pull()


def test_stalled():
    with Home() as home:
        hub.faults[CDN_SHARD] = [hang(30)]
        home.pull(SMALL, env={"HF_HUB_DOWNLOAD_TIMEOUT": "1"})
        home.check_complete(SMALL, SMALL_NEEDED)


def wait_for_partial(home, size):
    path = home.path(SMALL, "blobs", hub.repos[SMALL].etag(SHARD) + ".incomplete")
    for _ in range(500):
        if os.path.exists(path) and os.path.getsize(path) >= size:
            return path
        time.sleep(0.01)
    check(False, f"{path} never came")
    return path


def test_killed_and_resumed():
    for number, code in [(signal.SIGKILL, -9), (signal.SIGINT, 1)]:
        with Home() as home:
            hub.chunk, hub.chunk_delay = 20000, 0.05
            process = home.start(SMALL, "-j", "1")
            partial = wait_for_partial(home, 60000)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
            check(process.returncode == code, f"signal {number}: exit {process.returncode}: {err}")
            check(number == signal.SIGKILL or "interrupted" in err, f"signal {number}: {err}")
            check(not os.path.exists(home.path(SMALL, "snapshots", COMMIT)), "a snapshot before its time")
            left = os.path.getsize(partial)
            check(read(partial) == hub.repos[SMALL].files[SHARD][:left], "what was left")
            hub.chunk_delay = 0
            hub.log.clear()
            result = home.pull()
            check(hub.requests(CDN_SHARD)[0][2].get("Range") == f"bytes={left}-", "not gone on with")
            check(state(result, SHARD) == "resumed", f"state {state(result, SHARD)}")
            home.check_complete(SMALL, SMALL_NEEDED)


def leave_partial(home, data):
    os.makedirs(home.path(SMALL, "blobs"))
    with open(home.path(SMALL, "blobs", hub.repos[SMALL].etag(SHARD) + ".incomplete"), "wb") as file:
        file.write(data)


def test_partial_files():
    data = None
    for what, faults in [("damaged", []), ("too long", []), ("whole", []),
                         ("server without ranges", [lambda h: not h.answer(200, (), hub.repos[SMALL].files[SHARD])]),
                         ("server that has no such part", [status(416)])]:
        with Home() as home:
            data = hub.repos[SMALL].files[SHARD]
            leave_partial(home, {"damaged": b"?" * 1000, "too long": data + b"more", "whole": data}.get(what, data[:5000]))
            hub.faults[CDN_SHARD] = faults
            home.pull()
            home.check_complete(SMALL, SMALL_NEEDED)
            if what == "whole":
                check(not hub.requests(CDN_SHARD), "fetched though it was there")
    with Home() as home:
        leave_partial(home, data[:5000])
        hub.faults[CDN_SHARD] = [document(data[6000:], 206, [("Content-Range", f"bytes 6000-{len(data) - 1}/*")])]
        home.refused("sends the part", "bytes 5000-")


def test_locks():
    with Home() as home:
        locks = os.path.join(home.dir, "hub", ".locks", "models--tests--small")
        os.makedirs(locks)
        with open(os.path.join(locks, hub.repos[SMALL].etag(SHARD) + ".lock"), "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            home.refused("another process", SHARD)
        home.pull()
    with Home() as home:
        hub.chunk_delay = 0.02
        both = [home.start() for _ in range(2)]
        results = [process.communicate(timeout=60) for process in both]
        check(any(p.returncode == 0 for p in both), f"two at once: {results}")
        for process, (_, err) in zip(both, results):
            check(process.returncode == 0 or "another process" in err, f"two at once: {err}")
        home.check_complete(SMALL, SMALL_NEEDED)


# ---- what is refused -----------------------------------------------------------------------------------------------


def test_names_and_access():
    with Home() as home:
        home.refused("no such model", hub.url, "nobody/nothing", repo="nobody/nothing")
        home.refused("no such model", "the token has no access", repo="nobody/nothing", env={"HF_TOKEN": "t"})
        check(not os.path.exists(os.path.join(home.dir, "hub")), "a wrong name left folders")
        home.refused('no revision "v9"', args=["--revision", "v9"])
        for name in ["justaname", "a/b/c", "../x", "a/..", "a b/c", ""]:
            home.refused("org/name", repo=name, code=2)
        for revision in ["../x", "a//b", "a/../b", "/a", "a b"]:
            home.refused("revision", args=["--revision", revision], code=2)
        home.refused("HF_ENDPOINT", env={"HF_ENDPOINT": "ftp://x"}, code=2)
        home.refused("HF_HUB_OFFLINE", env={"HF_HUB_OFFLINE": "1"}, code=2)
        home.refused("127.0.0.1:9", env={"HF_ENDPOINT": "http://127.0.0.1:9"})
        home.call("pull", code := "--json")
        found, out, _ = home.call("pull", "nobody/nothing", "--json")
        check(found == 1 and json.loads(out)["error"]["status"] == "not_found", f"--json: {out} {code}")


def test_statuses():
    cases = [(401, "needs a token"), (403, "denies access"), (404, "HTTP 404"), (400, "HTTP 400"),
             (502, "HTTP 502")]
    for number, say in cases:
        for request in ["GET /api/*", f"HEAD */{SHARD}", CDN_SHARD]:
            if number >= 500 and request != CDN_SHARD:
                continue  # each is waited for
            with Home() as home:
                hub.faults[request] = [forever(status(number))]
                home.refused(say, SMALL)
    with Home() as home:
        hub.faults["GET /api/*"] = [status(429, [("Retry-After", "1")])]
        hub.faults[CDN_SHARD] = [status(429, [("Retry-After", "1")]), status(503)]
        began = time.monotonic()
        home.pull()
        check(time.monotonic() - began > 1.9, "Retry-After was not waited for")
    for request in ["GET /api/*", CDN_SHARD]:
        with Home() as home:
            hub.faults[request] = [forever(status(429, [("Retry-After", "3600")]))]
            home.refused("too many requests", "3600 s")
            check(len(hub.requests(request)) == 1, "asked again at once")


def listing(names, sha=COMMIT):
    return json.dumps({"sha": sha, "siblings": [{"rfilename": name} for name in names]}).encode()


def test_hostile_listings():
    bad = [(listing(["config.json", name]), "refused") for name in
           ["../../x.json", "/etc/passwd", "a/../../b", "..", "a\\..\\b", "./config.json"]]
    bad += [(listing(["config.json"], sha), '"sha"') for sha in ["../../..", "", COMMIT[:-1], COMMIT + "0", None, 7]]
    bad += [(b"<html>", "JSON"), (b"", "JSON"), (b"[]", '"sha"'), (b"[" * 100000, "depth"),
            (json.dumps({"sha": COMMIT, "siblings": 5}).encode(), "siblings"),
            (json.dumps({"sha": COMMIT, "siblings": [5]}).encode(), "refused"),
            (listing([]), "config.json"), (listing(["config.json", "model.gguf"]), "no weights"),
            (listing([f"f{i}" for i in range(30000)]), "siblings"),
            (b'{"sha": "' + b"a" * (17 << 20) + b'"}', "over")]
    with Home() as home:
        for body, say in bad:
            hub.faults["GET /api/*"] = [document(body)]
            err = home.refused("" if say in ("JSON", "depth") else say)
            check(len(err) < 700, "a long message")
        for fault, say in [(endless, "over"), (many_headers, "headers"), (redirect_to_itself, "redirects")]:
            hub.faults["GET /api/*"] = [forever(fault)]
            home.refused(say)
        hub.faults["GET /api/*"] = [status(302, [("Location", "file:///etc/passwd")])]
        home.refused("")


def test_hostile_files():
    data = None

    def heads(**headers):
        return forever(document(b"", 200, [(k.replace("_", "-"), v) for k, v in headers.items()]))

    good = "a" * 64
    for fault, say in [(heads(ETag="../../../x"), "etag"), (heads(ETag="a" * 63), "etag"), (heads(), "etag"),
                       (heads(X_Linked_Etag=good, X_Linked_Size="9" * 17), "MB free"),
                       (heads(X_Linked_Etag=good, X_Linked_Size="9" * 18), "MB free"),
                       (forever(document(b"", 302, [("X-Linked-Etag", good), ("X-Linked-Size", "-5"),
                                                    ("Location", "/x")])), "size"),
                       (heads(X_Linked_Etag=good, X_Linked_Size="10", X_Repo_Commit="e" * 40), "commit"),
                       (forever(redirect_to_itself), "redirects"), (forever(many_headers), "headers")]:
        with Home() as home:
            hub.faults[f"HEAD */{SHARD}*"] = [fault]
            home.refused(say)
    with Home() as home:
        hub.faults["HEAD */config.json"] = [heads(X_Linked_Etag=good, X_Linked_Size=str(1 << 40))]
        home.refused("config.json", "at most")
    for name in ["../../evil.safetensors", "evil.safetensors", "config.json", 5]:
        with Home() as home:
            hub.repos[SMALL].files["model.safetensors.index.json"] = json.dumps({"weight_map": {"t": name}}).encode()
            home.refused("no weight file", "model.safetensors.index.json")
    for what, say in [("other bytes", "SHA-256"), ("longer", "expected"), ("shorter", "expected"),
                      ("endless", "more than"), ("loop", "redirects"), ("file", "")]:
        with Home() as home:
            data = hub.repos[SMALL].files[SHARD]
            hub.faults[CDN_SHARD + "*"] = [forever({
                "other bytes": document(data[:-1] + b"?"), "longer": document(data + b"?"),
                "shorter": document(data[:-1]), "endless": endless, "loop": redirect_to_itself,
                "file": status(302, [("Location", "file:///etc/passwd")])}[what])]
            home.refused(say, SHARD)
            etag = hub.repos[SMALL].etag(SHARD)
            check(not os.path.exists(home.path(SMALL, "blobs", etag)), f"{what}: a blob that is not its hash")
            if what == "other bytes":
                check(sha256(data[:-1] + b"?") in home.call("pull", SMALL)[2], "the hash that was found")
                check(len(hub.requests(CDN_SHARD)) == 4, "fetched once more, each time")
    found = [os.path.join(path, name) for path, _, names in os.walk(tempfile.gettempdir()) for name in names
             if name == "evil.safetensors"]
    check(not found, f"written outside: {found}")


def test_file_size_limit():
    with Home() as home:
        done = subprocess.run(["bash", "-c", f'ulimit -f 64; exec "{PROGRAM}" pull {SMALL}'], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, env=home.environment(), check=False)
        check(done.returncode == 1 and "File too large" in done.stderr, f"a limit of files' sizes: {done}")
        check(not os.path.exists(home.path(SMALL, "snapshots", COMMIT)), "an unfinished snapshot is there")
        result = home.pull()  # what came before the limit is gone on with
        check(any(file["state"] == "resumed" for file in result["files"]), f"states: {result['files']}")


def test_full_disk():
    with Home() as home:
        mount = f"mount -t tmpfs -o size=1m none {home.dir} && exec {PROGRAM} pull {SMALL}"
        done = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, text=True, timeout=60,
                              env=home.environment(), check=False)
        if "megadecode" not in done.stderr:
            print(f"test_pull: no small file system here ({done.stderr.strip()}); that part is skipped")
            return
        check(done.returncode == 1 and "MB more" in done.stderr and done.stderr.count("\n") == 1, done.stderr)


def test_terminal():
    with Home() as home:
        hub.chunk_delay = 0.05
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(PROGRAM, [PROGRAM, "pull", SMALL, "-j", "1"], home.environment({"TERM": "xterm"}))
        text = b""
        try:
            while part := os.read(terminal, 4096):
                text += part
        except OSError:
            pass
        check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, f"on a terminal: {text!r}")
        check(re.search(rb"\d of 2 MB, +[\d.]+ MB/s, +0:0\d left \[#+\.+\] +\d+%", text), f"no bar in {text!r}")
        check(text.rstrip().endswith(COMMIT.encode()), "the folder at the end")


run_all("test_pull", globals())
