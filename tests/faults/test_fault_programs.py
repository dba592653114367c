"""pull, chat's /save and synth when the disk is full or the process is killed: no half file is ever taken for a whole
one, and the next run is fine. Usage: test_fault_programs.py PROGRAM FAULTS_LIBRARY"""
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from hub_server import COMMIT, Hub, Repo
from steer import FOREVER, Faults

PROGRAM = os.path.abspath(sys.argv[1])
EXHAUSTIVE = bool(os.environ.get("MEGADECODE_EXHAUSTIVE"))
REPO, MODEL = "tests/small", os.path.abspath("models/fairytales")
hub = Hub()
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "MEGADECODE_", "XDG_")) and not k.lower().endswith("_proxy")}
ENV["MEGADECODE_THREADS"] = "1"


def call(*args, faults=None, env=None, data=b"", **more):
    done = subprocess.run([PROGRAM, *args], input=data, capture_output=True, timeout=120,
                          env={**ENV, **(env or {}), **(faults.env() if faults else {})}, **more)
    return done.returncode, done.stderr.decode("utf-8", "replace")


class Folder:
    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="faults-")
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


# ---- pull ----------------------------------------------------------------------------------------------------------


def serve():
    hub.reset()
    shards = {"model-%05d-of-00003.safetensors" % i: bytes([i]) * 200000 for i in (1, 2, 3)}
    index = {"metadata": {}, "weight_map": {"t%d" % i: name for i, name in enumerate(shards)}}
    hub.repos[REPO] = Repo({"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(), **shards},
                           large=shards)


def cache(home, *parts):
    return os.path.join(home, "hub", "models--" + REPO.replace("/", "--"), *parts)


def check_blobs(home):
    """What has a hash for its name has that hash, and a link of a snapshot leads to such a file."""
    folder = cache(home, "blobs")
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        assert name.endswith((".incomplete", ".lock")) or name in (hashlib.sha256(data).hexdigest(), git), name
    folder = cache(home, "snapshots", COMMIT)
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        assert os.path.isfile(os.path.join(folder, name)), name + " leads nowhere"


def pull_each(kind, persistent):
    """Pulls with the first, second, ... call of a kind failing, then as it should be; how many calls there were."""
    serve()
    first = 0
    while True:
        first += 1 if EXHAUSTIVE or first < 6 else 3
        with Folder() as home:
            env = {"HF_HOME": home, "HF_ENDPOINT": hub.url}
            faults = Faults()
            faults.set(kind, first, FOREVER if persistent else None)
            code, err = call("pull", REPO, faults=faults, env=env)
            hit = faults.clear(kind)
            check_blobs(home)
            if kind == "KILL":
                assert code == (-signal.SIGKILL if hit else 0), (first, code, err)
            elif persistent:
                assert code == (1 if hit else 0) and "Traceback" not in err, (first, code, err)
            else:
                assert code in (0, 1), (first, code, err)
            whole = code == 0
            if code == 0:
                assert sorted(os.listdir(cache(home, "snapshots", COMMIT))) == sorted(hub.repos[REPO].files)
            code, err = call("pull", REPO, env=env)
            assert code == 0, (first, code, err)
            check_blobs(home)
            for name, data in hub.repos[REPO].files.items():
                with open(cache(home, "snapshots", COMMIT, name), "rb") as file:
                    assert file.read() == data, name
            if not hit:
                assert whole
                return first - 1


def pull_on_a_full_disk():
    print("        %d writes fail in turn" % pull_each("WRITE", True))


def pull_killed_anywhere():
    print("        killed in %d places" % pull_each("KILL", False))


# ---- memory --------------------------------------------------------------------------------------------------------


def commands_without_memory():
    """Each command with allocations failing: the same output, or an exit status and a message; never a crash."""
    tried = failed = 0
    with Folder() as home:
        template = os.path.join(home, "template")
        with open(template, "w") as file:
            file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
        source = config(home, 1)
        commands = [["run", "-m", MODEL, "-p", "Once", "-n", "3", "--temp", "0"],
                    ["run", "-m", MODEL, "-p", "Once", "-n", "3", "--temp", "0", "--logprobs", "2", "--json"],
                    ["chat", "-m", MODEL, "--chat-template-file", template, "--temp", "0", "-n", "2"],
                    ["inspect", "-m", MODEL, "--plan"], ["inspect", "-m", MODEL, "--json"], ["devices", "--json"],
                    ["tokenize", "-m", MODEL, "Once upon"], ["synth", "--config", source, "-o"], ["--help"]]
        for command in commands:
            def run(faults, number):
                words = command + ([os.path.join(home, "out-%s" % number)] if command[0] == "synth" else [])
                done = subprocess.run([PROGRAM, *words], input=b"Hello\n", capture_output=True, timeout=120,
                                      env={**ENV, "HOME": home, "XDG_STATE_HOME": home, **faults.env()})
                out = done.stdout.decode("utf-8", "replace")
                if out.startswith("{") and done.returncode == 0:  # without what differs from run to run
                    out = {k: v for k, v in json.loads(out).items() if k not in ("timings", "memory", "seed")}
                return done.returncode, out, done.stderr.decode("utf-8", "replace")

            faults = Faults()
            right = run(faults, "right")
            assert right[0] == 0, (command, right)
            calls = faults.calls("MEMORY")
            step = max(1, calls // (300 if EXHAUSTIVE else 14))
            for first in list(range(1, min(calls, 12), 3)) + list(range(12, calls + 1, step)):
                faults.set("MEMORY", first, FOREVER if first % 2 else first)
                code, out, err = run(faults, first)
                tried += 1
                failed += code != 0
                assert code in (0, 1, 2), "%s, allocation %d of %d fails: exit %d, %s" % (command, first, calls, code, err)
                assert code != 0 or out == right[1] or command[0] in ("devices", "--help"), (command, first, out, err)
                assert code == 0 or err, (command, first, "no message")
    print("        %d runs, %d of them failed in order" % (tried, failed))


# ---- chat ----------------------------------------------------------------------------------------------------------


def chat_saves():
    """The file of /save is the old one or the new one."""
    places = failures = 0
    with Folder() as home:
        path, template = os.path.join(home, "chat.json"), os.path.join(home, "template")
        with open(template, "w") as file:
            file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
        old = b'[{"role": "system", "content": "old"}]\n'
        for kind in ("WRITE", "RENAME", "KILL"):
            for first in range(1, 40):
                with open(path, "wb") as file:
                    file.write(old)
                faults = Faults()
                faults.set(kind, first, FOREVER)
                lines = "/system new\n/save! %s\n" % path
                code, err = call("chat", "-m", "models/fairytales", "--chat-template-file", template, data=lines.encode(),
                                 faults=faults, env={"HOME": home, "XDG_STATE_HOME": home})
                hit = faults.clear(kind)
                with open(path, "rb") as file:
                    found = file.read()
                assert found == old or json.loads(found)[0]["content"] == "new", (kind, first, found)
                assert code in (0, 1) or code == -signal.SIGKILL, (kind, first, code, err)
                places += kind == "KILL" and hit > 0
                failures += kind != "KILL" and hit > 0
                if not hit:
                    assert found != old, (kind, first, err)
                    break
    print("        %d failures, killed in %d places" % (failures, places))
    assert failures >= 3 and places >= 3


# ---- synth ---------------------------------------------------------------------------------------------------------


def config(home, layers):
    path = os.path.join(home, "config.json")
    with open(path, "w") as file:
        json.dump({"model_type": "llama", "num_hidden_layers": layers, "hidden_size": 512, "intermediate_size": 1024,
                   "vocab_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
                   "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": False,
                   "bos_token_id": 0, "eos_token_id": 1, "quantization": {"bits": 4, "group_size": 64}}, file)
    return path


def synth_killed_at_any_time():
    """The folder is not there, or whole; the next run makes it, whatever the killed one left beside it."""
    there = 0
    dice = random.Random(1)
    with Folder() as home:
        source = config(home, 12)
        start = time.monotonic()
        assert call("synth", "--config", source, "-o", os.path.join(home, "whole"))[0] == 0
        seconds = time.monotonic() - start
        right = sorted(os.listdir(os.path.join(home, "whole")))
        for i in range(200 if EXHAUSTIVE else 12):
            out = os.path.join(home, "out%d" % i)
            process = subprocess.Popen([PROGRAM, "synth", "--config", source, "-o", out], env=ENV, stderr=subprocess.DEVNULL)
            time.sleep(dice.random() * seconds)
            process.kill()
            process.wait()
            if os.path.exists(out):
                there += 1
                assert sorted(os.listdir(out)) == right
                assert call("inspect", "-m", out)[0] == 0
            else:
                assert call("run", "-m", out, "-p", "x")[0] != 0
                assert call("synth", "--config", source, "-o", out)[0] == 0
            for name in os.listdir(home):
                if name.startswith("out"):
                    shutil.rmtree(os.path.join(home, name))
    print("        whole after %d of the kills" % there)


def full_file_system():
    """A file system of 1 MB that is really full. Needs root for the mount."""
    with Folder() as home:
        disk = os.path.join(home, "disk")
        os.mkdir(disk)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk],
                                               stderr=subprocess.DEVNULL).returncode:
            print("        skipped: no file system can be mounted here")
            return
        try:
            code, err = call("synth", "--config", config(home, 12), "-o", os.path.join(disk, "out"))
            assert code == 1 and ("MB free" in err or "No space left" in err) and os.listdir(disk) == [], (code, err, os.listdir(disk))
            serve()
            big = {"model.safetensors": bytes(3000000), "config.json": b"{}"}
            hub.repos[REPO] = Repo(big, large=["model.safetensors"])
            code, err = call("pull", REPO, env={"HF_HOME": disk, "HF_ENDPOINT": hub.url})
            assert code == 1 and ("MB free" in err or "the disk is full at" in err), (code, err)
            check_blobs(disk)
            subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
            code, err = call("pull", REPO, env={"HF_HOME": disk, "HF_ENDPOINT": hub.url})
            assert code == 0, err
            check_blobs(disk)
        finally:
            subprocess.run(["umount", disk], check=True)


def main(*checks):
    failed = 0
    for check in [c for c in checks if not sys.argv[3:] or c.__name__ in sys.argv[3:]]:
        start = time.monotonic()
        try:
            check()
            print("ok      %-44s %5.1f s" % (check.__name__, time.monotonic() - start), flush=True)
        except BaseException:
            failed += 1
            print("FAILED  %s" % check.__name__)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(commands_without_memory, pull_on_a_full_disk, pull_killed_anywhere, chat_saves, synth_killed_at_any_time, full_file_system)
