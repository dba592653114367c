#!/usr/bin/env python3
"""The commands run, inspect and tokenize as people and programs use them: output, exit status, mistakes, pipes."""
import errno
import json
import os
import pty
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, "tests")
from checks import check, run_all

PROGRAM = os.path.abspath(sys.argv[1])
MODEL = "models/fairytales"
GREEDY = json.load(open("tests/goldens/data/greedy.json", encoding="utf-8"))


def call(*args, stdin=b"", env=None, timeout=120):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MEGADECODE_")}
    environment.update(env or {})
    done = subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, timeout=timeout, env=environment)
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "replace")


def call_json(*args, **kwargs):
    code, out, err = call(*args, "--json", **kwargs)
    check(out.count(b"\n") == 1 and out.endswith(b"\n"), f"{args}: one line of JSON, found {out[:200]!r}")
    try:
        return code, json.loads(out), err
    except ValueError:
        check(False, f"{args}: no JSON: {out[:200]!r} {err}")
        return code, {}, err


def refused(status, *args, say, **kwargs):
    code, out, err = call(*args, **kwargs)
    check(code == status, f"{args}: exit {code}, expected {status}: {err}")
    check(out == b"" or "--json" in args, f"{args}: wrote {out[:80]!r} to stdout")
    for text in [say] if isinstance(say, str) else say:
        check(text in err, f"{args}: {text!r} is not in {err!r}")


def test_program():
    code, out, err = call("--version")
    first = out.split(b"\n")[0].split()
    check(code == 0 and first[0] == b"megadecode" and len(first) == 2, f"--version: {out!r}")
    check(b"built for" in out and b"libcurl" in out, f"--version: {out!r}")
    code, out, err = call("--help")
    check(code == 0 and b"run" in out and b"inspect" in out and b"tokenize" in out and err == "", "--help")
    code, out, err = call()
    check(code == 2 and out == b"" and "Usage" in err, "no command")
    for name in ["run", "inspect", "tokenize", "bench", "synth", "chat"]:
        code, out, err = call(name, "--help")
        check(code == 0 and (b"--model" in out or name == "synth") and err == "", f"{name} --help")
        check(all(len(line) <= 100 and line == line.rstrip() for line in out.decode().split("\n")), f"{name}: wide help")
        check(call("help", name)[1] == out, f"help {name}")
        check(call(name, "-h")[1] == out, f"{name} -h")


def test_documents():
    """The answers that the documents show are the program's own."""
    readme = open("README.md", encoding="utf-8").read()
    line = next(line for line in readme.split("\n") if line.startswith("build/megadecode run "))
    code, out, err = call(*shlex.split(line)[1:], "--device", "cpu")
    check(code == 0 and f"{line}\n{out.decode()}fairytales: " in readme, f"README's story: {out!r}")
    shown = open("docs/CHAT.md", encoding="utf-8").read()
    line = next(line for line in shown.split("\n") if line.startswith("$ megadecode chat "))
    code, out, err = call(*shlex.split(line)[2:], "--device", "cpu", stdin=b"Once upon a time\n")
    check(code == 0 and f"> Once upon a time\n{out.decode()}[60 tokens, " in shown, f"CHAT's answer: {out!r}")


def test_wrong_usage():
    refused(2, "rnu", say=["unknown command 'rnu'", "Did you mean 'run'?"])
    refused(2, "--runn", say="unknown option")
    refused(2, "run", "--tmep", "1", say=["unknown option '--tmep'", "Did you mean --temp?", "run --help"])
    refused(2, "run", "-Z", say="unknown option '-Z'")
    refused(2, "run", "--temp", say="needs a value")
    refused(2, "run", "-n", say="needs a value")
    refused(2, "run", "--json=yes", say='--json takes no value, found "yes"')
    refused(2, "run", "--json=", say='--json takes no value, found ""')
    for command in ["run", "chat", "devices"]:
        code, out, err = call(command, "--help=3")
        check(code == 2 and out == b"" and '--help takes no value, found "3"' in err and "Did you mean" not in err, f"--help=3: {err!r}")
    refused(2, "run", "--to=5", say="is the beginning of several options")
    refused(2, "run", "--to", "5", say=["'--to' is the beginning of several options", "--tokens", "--top-k", "--top-p"])
    for word in ["--help=3", "--version=3"]:
        refused(2, word, say=[f"found '{word}'", "takes no value"])
    refused(2, "--version", "more", say="found 'more'")
    refused(2, "help", "run", "chat", say="found 'chat'")
    for option, value in [("-n", "-1"), ("-n", "x"), ("-n", "1e3"), ("-n", ""), ("-t", "0"), ("--temp", "nan"),
                          ("--temp", "-1"), ("--temp", "inf"), ("--top-p", "1.5"), ("--min-p", "-0.1"),
                          ("--seed", "-1"), ("--seed", "99999999999999999999"), ("--top-k", "4294967296"),
                          ("-n", "18446744073709551616"), ("--top-k", " 5"), ("-c", "0")]:
        refused(2, "run", "-p", "x", option, value, say=f'found "{value}"')
    refused(2, "run", "-p", "x", "-f", "y", say="exclude each other")
    bench = ["bench", "-p", "0", "-n", "2", "-r", "1"]
    for words, one, other in [(["run", "-p", "x", "--echo", "--json"], "--echo", "--json"), (["run", "-p", "x", "-t", "1", "--groups", "2", "--device", "cpu"], "threads 1", "groups 2"),
                              ([*bench, "-o", "svg", "--json"], "--output svg", "--json"), ([*bench, "-o", "md", "--json"], "--output md", "--json"),
                              ([*bench, "--json", "-o", "csv"], "--output csv", "--json"), (["inspect", "-o", "svg", "--json"], "--output svg", "--json"),
                              (["inspect", "--json", "-o", "text"], "--output text", "--json"), ([*bench, "--ab", "ops,resident", "--engine", "ops"], "--ab", "--engine"),
                              ([*bench, "--stages", "-o", "csv", "--sweep-depth", "8"], "--stages", "sweeps"), ([*bench, "--stages", "-o", "csv", "--sweep-groups"], "--stages", "sweeps"),
                              ([*bench, "--stages", "-o", "csv", "--ab", "ops,resident"], "--stages", "--ab"),
                              (["verify", "--golden", "x", "--steps", "3"], "--steps", "--against"), (["verify", "--golden", "x", "--prompt", "y"], "--prompt", "--against"),
                              (["verify", "--golden", "x", "--against", "ops"], "--golden", "--against")]:
        refused(2, *words, say=[one, other])
    for words in [[*bench, "-o", "json", "--json"], ["inspect", "--json", "-o", "json"], ["run", "-p", "x", "-n", "1", "-t", "2", "--groups", "2", "--json", "--device", "cpu"],
                  [*bench, "--json", "-t", "2", "--sweep-groups", "--device", "cpu"]]:
        code, out, err = call(*words)
        check(code == 0 and isinstance(json.loads(out), dict), f"{words}: {code} {err}")
    for command, say in [("bench", "md, json, csv or svg"), ("inspect", "text, json or svg")]:
        refused(2, command, "-o", "png", say=['--output: found "png"', say])
    refused(2, "run", "-p", "x", "word", say='found "word"')
    refused(2, "run", "-p", "x", "--engine", "warp", say=["warp", "resident, ops or reference"])
    refused(2, "run", "-p", "x", "--device", "tpu", say=["tpu", "cpu, cuda or cuda:N"])
    refused(2, "run", "-p", "x", "-c", "5000", say=["5000", "4096"])
    refused(2, "run", "-p", "x", "--stop", "", say="stop[0]")
    refused(2, "run", "-p", "x", env={"MEGADECODE_THREADS": "many"}, say=["MEGADECODE_THREADS", "many"])
    refused(2, "inspect", "word", say="word")
    refused(2, "tokenize", "--decode", "1 -2", say="negative")
    refused(2, "tokenize", "--decode", "99999999999", say="99999999999")


def test_environment():
    """A variable whose value is none is refused as an option's is, with the values there are; an empty one counts as unset."""
    words = ["run", "-p", "x", "-n", "1", "--temp", "0"]
    for name, value, say in [("LOG", "loud", "error, warn, info or debug"), ("LOG", "WARN", "error, warn, info or debug"),
                             ("ENGINE", "warp", "resident, ops or reference"), ("DEVICE", "tpu", "cpu, cuda or cuda:N"),
                             ("THREADS", "many", "a whole number from 1 to 1024"), ("THREADS", "-1", "a whole number from 1 to 1024"),
                             ("THREADS", "0", "a whole number from 1 to 1024"), ("THREADS", "1025", "a whole number from 1 to 1024"),
                             ("THREADS", "1e1", "a whole number from 1 to 1024"), ("THREADS", "99999999999999999999", "a whole number from 1 to 1024"),
                             ("GROUPS", "x", "a whole number from 1 to 1024"), ("GROUPS", "0", "a whole number from 1 to 1024"),
                             ("DEVICE", "cuda:x", "cpu, cuda or cuda:N"), ("DEVICE", "cuda:", "cpu, cuda or cuda:N"),
                             ("CPU", "warp", "scalar, avx2, avx512, avx512vnni, avx512bf16 or neon"), ("API_KEY", "", "MEGADECODE_API_KEY is empty")]:
        command = words if value else ["serve", "--port", "0"]
        refused(2, *command, env={"MEGADECODE_" + name: value}, say=["MEGADECODE_" + name, value, say])
        if value:
            check(call(*words, env={"MEGADECODE_" + name: ""})[0] == 0, f"an empty MEGADECODE_{name}")
    for level in ["error", "warn", "info", "debug"]:
        check(call(*words, env={"MEGADECODE_LOG": level})[0] == 0, f"MEGADECODE_LOG={level}")
    check(call("--version", env={"MEGADECODE_LOG": "loud"})[0] == 0, "--version needs no log")


def test_failures():
    refused(1, "run", "-m", "no/such/folder", "-p", "x", say="no/such/folder")
    refused(1, "inspect", "-m", "no/such/folder", say="no/such/folder")
    refused(1, "tokenize", "-m", "no/such/folder", "x", say="no/such/folder")
    refused(1, "run", "-f", "no/such/file", say="no/such/file")
    refused(1, "run", "-p", "x", "--kv", "no/such/file", say="no/such/file")
    refused(1, "run", "-p", "once " * 30, "-c", "20", say=["tokens do not fit", "20"])
    code, out, err = call("run", "-m", "no/such/folder", "-p", "x", "--json")
    found = json.loads(out)
    check(code == 1 and found["error"]["status"] == "not_found" and "no/such/folder" in found["error"]["message"],
          f"an error as JSON: {out!r}")


def test_run():
    words = ["run", "-p", "Once upon a time", "-n", "30", "--temp", "0"]
    code, found, err = call_json(*words)
    check(code == 0 and err == "", f"run --json: exit {code}, {err}")
    check(found["ids"] == GREEDY["greedy_ids_bf16_kv"][:30], f"greedy ids: {found['ids']}")
    check(found["finish_reason"] == "length" and found["stop"] is None, f"finish: {found}")
    check(found["usage"] == {"prompt_tokens": 5, "completion_tokens": 30, "total_tokens": 35}, f"usage: {found}")
    check(found["text"].startswith(", there was a little girl named"), f"text: {found['text']}")
    check({"load_seconds", "first_token_seconds", "prefill_tps", "decode_tps"} <= set(found["timings"]), "timings")
    check(found["memory"]["peak_bytes"] > found["memory"]["weight_bytes"] > 5e6, f"memory: {found['memory']}")
    code, out, err = call(*words)
    check(code == 0 and out.decode() == found["text"] + "\n", f"the text alone on stdout: {out!r}")
    check(call(*words, "--echo")[1].decode() == "Once upon a time" + found["text"] + "\n", "--echo")
    # The same from a file and from standard input, whose last newline is not part of the prompt.
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(b"Once upon a time\n")
        file.flush()
        check(call("run", "-f", file.name, *words[3:])[1] == out, "run -f")
    check(call("run", *words[3:], stdin=b"Once upon a time\n")[1] == out, "prompt from stdin")
    check(call("run", "-f", "-", *words[3:], stdin=b"Once upon a time")[1] == out, "run -f -")
    check(call(*words, env={"MEGADECODE_MODEL": os.path.abspath(MODEL)})[1] == out, "MEGADECODE_MODEL")
    check(call(*words, "-m", MODEL)[1] == out, "-m")
    code, out, err = call(*words, "-v")
    for text in ["load", "first token", "prefill", "decode", "tokens/s", "memory", "MB"]:
        check(text in err, f"-v says {text}: {err}")
    check(out.decode() == found["text"] + "\n", "-v writes to stderr only")


def test_unusual_input():
    words = ["-n", "5", "--temp", "0"]
    expected = call("run", "-p", "Once upon a time", *words)[1]
    check(call("run", "-f", "/dev/stdin", *words, stdin=b"Once upon a time\n")[1] == expected, "run -f /dev/stdin")
    refused(1, "run", "-f", "tests", say="tests: cannot read: Is a directory")
    # Without its standard streams a program opens files under their numbers: no model may be read as the prompt.
    for command in [["run", "-n", "5"], ["chat"], ["tokenize"]]:
        done = subprocess.run(["sh", "-c", 'exec "$0" "$@" <&-', PROGRAM, *command], capture_output=True, timeout=120)
        check(done.returncode == 1 and done.stdout == b"" and b"standard input: cannot read: " in done.stderr,
              f"{command} without standard input: {done}")
    done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', PROGRAM, "run", "-p", "x", *words], capture_output=True)
    check(done.returncode == 1 and b"standard output failed" in done.stderr, f"without standard output: {done}")
    done = subprocess.run(["sh", "-c", 'exec "$0" "$@" 2>&-', PROGRAM, "run", "-p", "Once upon a time", *words],
                          capture_output=True)
    check(done.returncode == 0 and done.stdout == expected, f"without standard error: {done}")


def test_no_utf8():
    """Text that is none is refused wherever it comes from, with the place: a model would read something else than meant."""
    words = ["-n", "5", "--temp", "0"]
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(b"Once upon a caf\xe9 in Paris\n")  # Latin-1
        file.flush()
        refused(2, "run", "-f", file.name, *words, say=[file.name, "found 0xE9 at byte offset 15", "expected UTF-8"])
        refused(2, "run", "--json", "-f", file.name, *words, say=[file.name, "found 0xE9 at byte offset 15"])
    for text, say in [(b"caf\xe9 ol\xe9", "found 0xE9 at byte offset 3"), (b"\xff", "found 0xFF at byte offset 0"),
                      (b"ab\xe2\x82", "found 0xE2 at byte offset 2, where the text ends in the middle of a character"),
                      (b"12345678\xc0\x80", "found 0xC0 at byte offset 8"), (b"\xed\xa0\x80", "found 0xED at byte offset 0")]:
        refused(2, "run", *words, stdin=text, say=["standard input: " + say])
        refused(2, "tokenize", stdin=text, say=["standard input: " + say])
        refused(2, "run", *words, "-p", text, say=["the prompt: " + say])
        refused(2, "tokenize", text, say=["the text: " + say])
    refused(2, "verify", "--against", "reference", "--prompt", b"\xe9", say="--prompt: found 0xE9 at byte offset 0")
    refused(2, "run", *words, "-p", "x", "--stop", "ok", "--stop", b"\xe9", say="stop[1]: found 0xE9 at byte offset 0")
    check(call("run", *words, "-p", "caf\u00e9 \U0001f600")[0] == 0, "UTF-8 of two and four bytes")
    # A folder may have any name.
    with tempfile.TemporaryDirectory() as folder:
        link = os.fsencode(folder) + b"/mod\xe8le"
        os.symlink(os.path.abspath(MODEL), link)
        check(call_json("run", "-m", link, "-p", "x", *words)[1].get("model") == "mod?le", "a model's name that is no UTF-8")
        check(call_json("inspect", "-m", link)[1].get("dir", "").endswith("/mod?le"), "inspect of such a folder")
        refused(2, "serve", "--port", "0", "-m", link, say=["--alias", "found 0xE8 at byte offset 3"])
    refused(2, "serve", "--port", "0", "--alias", b"\xe8", say="--alias: found 0xE8")


def test_broken_optional_files():
    """A file that may be absent is refused when it is there and can't be read."""
    for name in ["generation_config.json", "kv_config.json", "tokenizer_config.json", "chat_template.jinja",
                 "model.safetensors.index.json", "tokenizer.json"]:
        for spoil in [lambda path: os.symlink("nowhere", path), os.mkdir, os.mkfifo]:
            with tempfile.TemporaryDirectory() as folder:
                for file in os.listdir(MODEL):
                    if file != name:
                        os.symlink(os.path.abspath(f"{MODEL}/{file}"), f"{folder}/{file}")
                spoil(f"{folder}/{name}")
                refused(1, "run", "-m", folder, "-p", "x", "-n", "1", say=name)


def test_reasons_of_paths():
    """What can't be opened says why; only what is not there is called missing."""
    run = ["run", "-p", "x", "-n", "1"]
    with tempfile.TemporaryDirectory() as folder:
        os.symlink("loop", f"{folder}/loop")
        long = f"{folder}/" + "n" * 300
        for path, reason in [(f"{folder}/loop", os.strerror(errno.ELOOP)), (long, os.strerror(errno.ENAMETOOLONG)),
                             (f"{folder}/loop/x", os.strerror(errno.ELOOP))]:
            for command in [[*run, "-m", path], ["inspect", "-m", path], ["serve", "--port", "0", "-m", path], [*run[:1], "-f", path],
                            [*run, "--kv", path], ["verify", "--golden", path], ["serve", "--port", "0", "--chat-template-file", path],
                            ["chat", "--chat-template-file", path], ["synth", "--config", path, "-o", f"{folder}/made"]]:
                refused(1, *command, say=[path, reason])
        refused(1, "synth", "--config", f"{MODEL}/config.json", "-o", long, say=[long, os.strerror(errno.ENAMETOOLONG)])
        refused(1, *run, "-m", f"{folder}/none", say=[f"{folder}/none", "no such folder"])
        refused(1, *run, "--kv", f"{folder}/none", say=[f"{folder}/none", "no such file"])


def test_permissions():
    """The same of folders that may not be searched and files that may not be read, as a user who is not root."""
    if os.geteuid() != 0:
        user = {}
    else:
        user = {"user": 65534, "group": 65534, "extra_groups": []}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program, model, closed = f"{folder}/megadecode", f"{folder}/model", f"{folder}/closed"
        shutil.copy(PROGRAM, program)
        shutil.copytree(MODEL, model)
        os.mkdir(closed)
        env = {**os.environ, "HOME": folder, "HF_HOME": closed}

        def denied(path, *words):
            done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120, env=env, cwd=folder, stdin=subprocess.DEVNULL, **user)
            check(done.returncode == 1 and not done.stdout and path in done.stderr and "Permission denied" in done.stderr, f"{words}: {done}")

        run = ["run", "-p", "x", "-n", "1", "-m", model]
        try:
            os.chmod(closed, 0)
            for path in [f"{closed}/x", closed]:
                denied(path, "run", "-p", "x", "-m", path)
            denied(f"{closed}/hub/models--org--name", "run", "-p", "x", "-m", "org/name")
            for words in [["-f"], ["-p", "x", "--kv"]]:
                denied(f"{closed}/x", "run", "-m", model, *words, f"{closed}/x")
            denied(f"{closed}/x", "verify", "-m", model, "--golden", f"{closed}/x")
            for command in ["chat", "serve"]:
                denied(f"{closed}/x", command, "-m", model, "--chat-template-file", f"{closed}/x")
            denied(f"{closed}/x", "synth", "--config", f"{model}/config.json", "-o", f"{closed}/x")
            for name in os.listdir(model):
                if not name.endswith(".json") and not name.endswith(".safetensors"):
                    continue
                os.chmod(f"{model}/{name}", 0)
                denied(f"{model}/{name}", *run)
                os.chmod(f"{model}/{name}", 0o644)
        finally:
            os.chmod(closed, 0o755)


def test_sampling():
    words = ["run", "-p", "Once upon a time", "-n", "24"]
    texts = {seed: call(*words, "--seed", seed)[1] for seed in ["1", "2", "18446744073709551615"]}
    check(len(set(texts.values())) == 3, f"seeds give different texts: {texts}")
    for threads in ["1", "2", "3"]:
        check(call(*words, "--seed", "1", "-t", threads)[1] == texts["1"], f"seed 1 with {threads} threads")
    for engine in ["ops", "reference"]:
        check(call(*words, "--seed", "1", "--engine", engine)[1] == texts["1"], f"seed 1 with {engine}")
    greedy = call(*words, "--temp", "0")[1]
    check(call(*words, "--top-k", "1")[1] == greedy, "top-k 1 is greedy")
    check(call(*words, "--min-p", "1")[1] == greedy, "min-p 1 is greedy")
    wild = call(*words, "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", "3")[1]
    check(wild != greedy, "0 and 1 are off, not greedy")
    code, found, err = call_json(*words)  # without a seed it says which it took
    check(call(*words, "--seed", found["seed"])[1].decode() == found["text"] + "\n", "the seed it names repeats the text")
    penalised = call_json(*words, "--temp", "0", "--frequency-penalty", "100")[1]["ids"]
    check(len(set(penalised)) == len(penalised), f"a great penalty repeats no token: {penalised}")


def test_stop_and_limits():
    words = ["run", "-p", "Once upon a time", "-n", "60", "--temp", "0"]
    whole = call_json(*words)[1]["text"]
    for stop in [" little girl", "irl nam", "named Lily.", ","]:
        code, found, err = call_json(*words, "--stop", stop)
        check(found["finish_reason"] == "stop" and found["stop"] == stop, f"stop {stop!r}: {found}")
        check(found["text"] == whole[:whole.index(stop)], f"stop {stop!r}: {found['text']!r}")
    code, found, err = call_json(*words, "--stop", "@@", "--stop", "there")
    check(found["stop"] == "there", f"the second stop: {found}")
    code, found, err = call_json("run", "-p", "Once upon a time", "-n", "0", "-c", "20", "--temp", "0")
    check(found["finish_reason"] == "context" and found["usage"]["completion_tokens"] == 16, f"context: {found}")
    code, found, err = call_json("run", "-p", "", "-n", "3", "--temp", "0")
    check(code == 0 and found["usage"]["prompt_tokens"] == 1, f"an empty prompt is BOS: {found}")


def test_logprobs():
    refused(2, "run", "-p", "x", "-n", "1", "--logprobs", "2", say="give --json too")
    refused(2, "verify", "--golden", "x.json", "--prompt", "y", say="--prompt goes with --against")
    refused(2, "run", "-p", "x", "--seed", "-1", say="from 0 to 18446744073709551615")
    refused(2, "emit", "--arch", "sm_81", say="sm_90a")
    code, found, err = call_json("run", "-p", "Once upon a time", "-n", "4", "--temp", "0", "--logprobs", "3")
    check(len(found["logprobs"]) == 4, f"logprobs: {found}")
    # The first step against MLX's own logits: the golden's row after the whole prompt is its row 0.
    golden = json.load(open("tests/goldens/data/greedy-bf16-kv.json", encoding="utf-8"))
    check(golden["prefill_ids"] + golden["decode_ids"][:1] == [0, 629, 515, 262, 457], "the golden begins as expected")
    raw = open("tests/goldens/data/greedy-bf16-kv.logits.bf16", "rb").read(2 * 4096)
    row = [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in struct.unpack("<4096H", raw)]
    best = max(range(4096), key=lambda i: row[i])
    import math
    expected = row[best] - math.log(sum(math.exp(x) for x in row))
    first = found["logprobs"][0]
    check(first["id"] == best and abs(first["logprob"] - expected) < 0.05, f"MLX: {best} {expected}, found {first}")
    check([t["id"] for t in first["top"]][0] == best and len(first["top"]) == 3, f"top: {first}")
    joined = b"".join(bytes(t["bytes"]) for t in found["logprobs"])
    check(joined.decode() == found["text"], f"bytes join to the text: {joined!r} {found['text']!r}")


def test_quantized_kv():
    words = ["run", "-p", "Once upon a time", "-n", "12", "--temp", "0"]
    code, found, err = call_json(*words, "--kv", "snapshot")
    check(found["ids"] == GREEDY["greedy_ids_quantized_kv"][:12], f"quantized: {found['ids']}")
    code, bf16, err = call_json(*words)
    smaller = found["memory"]["kv_bytes"] < bf16["memory"]["kv_bytes"]
    check(smaller or found["engine"] == "reference", "a packed cache is smaller (the reference keeps floats)")
    for kv in ["8", "4", "none", f"{MODEL}/kv_config.json"]:
        check(call(*words, "--kv", kv)[0] == 0, f"--kv {kv}")


def test_kv_names():
    for kv in ["3", "", "16", "8bit"]:
        refused(2, "run", "-p", "x", "--kv", kv, say=[f'kv: found "{kv}"', "none, snapshot, 8, 4 or the path of a file"])
    refused(1, "run", "-p", "x", "--kv", "no/such/file", say=["no/such/file", "none, snapshot, 8, 4"])
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/kv.json", "w", encoding="utf-8") as file:
            file.write('[{"layer_idx": 2, "group_size": 64}]')
        refused(1, "run", "-p", "x", "--kv", f"{folder}/kv.json", say=['"bits" of layer 2 is missing', "expected 4 or 8"])


def test_many_threads():
    cpus = len(os.sched_getaffinity(0))
    words = ["run", "-p", "Once upon a time", "-n", "3", "--temp", "0"]
    quiet = call(*words, "-t", str(cpus))
    check(quiet[0] == 0 and quiet[2] == "", f"as many threads as CPUs: {quiet}")
    for args in [words, ["bench", "-n", "1", "-p", "0", "-r", "1"]]:
        code, out, err = call(*args, "-t", str(cpus + 3))
        check(code == 0 and err.count("\n") == 1 and f"{cpus + 3} threads on {cpus} CPU" in err, f"{args}: {err!r}")
    check(call(*words, "-t", str(cpus + 3))[1] == quiet[1], "more threads, the same text")
    check(call(*words, "-t", str(cpus + 3), env={"MEGADECODE_LOG": "error"})[2] == "", "MEGADECODE_LOG=error")


def check_stages(found, split, kinds):
    stages = found["stages"]
    check([kind["stage"] for kind in stages["kinds"]] == kinds, f"stages: {stages}")
    parts = ["setup_ms", "weights_ms", "handoff_ms", "arithmetic_ms", "out_ms"]
    for kind in stages["kinds"]:
        known = [kind[part] for part in parts if kind[part] is not None]
        check(len(known) == (5 if split else 2) and all(value >= 0 for value in known), f"parts: {kind}")
        check(abs(sum(known) - kind["ms"]) < 1e-9 and 0 <= kind["slowest_ms"], f"they add up: {kind}")
        check(kind["count"] == (6 if kind["stage"] not in ("embed", "head", "next") else 1), f"of six layers: {kind}")
    total = sum(kind["share"] for kind in stages["kinds"]) + stages["outside_share"]
    check(stages["tokens"] == 8 and stages["ms"] > 0 and abs(total - 1) < 1e-6, f"all of a token: {stages}")


def test_bench_stages():
    kinds = ["embed", "qkv", "attn_scores", "attn", "attn_merge", "out", "gate_up", "down", "head"]
    few = ["bench", "--stages", "-m", MODEL, "--device", "cpu", "-p", "0", "-n", "8", "-r", "2"]
    for engine in ["resident", "ops"]:
        code, found, _ = call_json(*few, "--json", "--engine", engine, "-d", "200")
        check_stages(found, False, kinds)
        by_name = {kind["stage"]: kind for kind in found["stages"]["kinds"]}
        check(by_name["qkv"]["arithmetic_ms"] > 0 and by_name["attn_merge"]["arithmetic_ms"] > 0, f"work: {by_name}")
        check(by_name["attn_scores"]["ms"] == 0, "a bf16 cache has no scores")
    table = call(*few)[1].decode()
    check(all(f"| {kind} |" in table for kind in kinds + ["outside"]), f"table: {table}")
    rows = call(*few, "-o", "csv")[1].decode().split("\n")
    check([row.split(",")[0] for row in rows] == ["stage", *kinds, "outside", ""], f"CSV: {rows}")
    check(len({row.count(",") for row in rows[:-1]}) == 1, f"CSV: {rows}")
    refused(2, *few, "-o", "svg", say="no picture")
    refused(1, *few, "--engine", "reference", say="reference engine")
    fakes = os.path.join(os.path.dirname(PROGRAM), "tests", "fakes")
    if not os.path.isdir(fakes):
        return
    with tempfile.TemporaryDirectory() as cache: # a driver without a GPU
        env = {"LD_LIBRARY_PATH": fakes, "FAKE_CUDA_VOCAB": "4096", "XDG_CACHE_HOME": cache}
        code, found, _ = call_json(*few, "--json", "--device", "cuda", env=env)
        check_stages(found, True, kinds + ["next"])


def test_devices():
    code, out, err = call("devices", "--json")
    cpu = json.loads(out)[0]
    check(code == 0 and cpu["device"] == "cpu" and cpu["usable"] and cpu["kernels"], f"devices: {cpu}")
    check(cpu["cpus"] == len(os.sched_getaffinity(0)), f"devices: {cpu}")
    named = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
             if line.startswith("model name")]
    check(cpu["name"] == named[0] if named and named[0] else "processor" in cpu["name"], f"the CPU's name: {cpu}")
    first = call("devices")[1].decode().split("\n")[0]
    check(first.startswith("cpu") and cpu["name"] in first and cpu["kernels"] in first, f"devices: {first!r}")
    code, out, err = call("devices", "--json", env={"MEGADECODE_CPU": "warp"})
    check(not json.loads(out)[0]["usable"] and "MEGADECODE_CPU" in json.loads(out)[0]["why"], f"no such kernels: {out}")


def test_tied_head():
    """As mlx-lm: of a tied model a plain lm_head.weight is dropped; a quantized one is refused."""
    with tempfile.TemporaryDirectory() as folder:
        for file in os.listdir(MODEL):
            if file != "config.json":
                os.symlink(os.path.abspath(f"{MODEL}/{file}"), f"{folder}/{file}")
        config = json.load(open(f"{MODEL}/config.json", encoding="utf-8"))
        config["tie_word_embeddings"] = True
        json.dump(config, open(f"{folder}/config.json", "w", encoding="utf-8"))
        refused(1, "run", "-m", folder, "-p", "x", "-n", "1", say=["lm_head.", "not part of the model"])
    with tempfile.TemporaryDirectory() as folder:
        for name in ["quantization", "quantization_config"]:
            config.pop(name, None)
        config.update(hidden_size=64, intermediate_size=64, num_hidden_layers=1, vocab_size=300,
                      num_attention_heads=1, num_key_value_heads=1, eos_token_id=1, tie_word_embeddings=False)
        json.dump(config, open(f"{folder}/config.json", "w", encoding="utf-8"))
        check(call("synth", "--config", f"{folder}/config.json", "-o", f"{folder}/m")[0] == 0, "synth")
        words = ["run", "-m", f"{folder}/m", "-p", "x", "-n", "6", "--temp", "0"]
        untied = call(*words)
        check(untied[2] == "", f"a head of its own: {untied}")
        written = json.load(open(f"{folder}/m/config.json", encoding="utf-8"))
        written["tie_word_embeddings"] = True
        json.dump(written, open(f"{folder}/m/config.json", "w", encoding="utf-8"))
        tied = call(*words)
        check(tied[0] == 0 and "lm_head.weight is not used" in tied[2] and tied[2].count("\n") == 1, f"tied: {tied}")
        check(tied[1] != untied[1], "the embedding is the head then")


def test_context():
    """-c is positions of the cache: the last token of the answer needs none."""
    for context in [6, 20]:
        code, found, err = call_json("run", "-p", "Once upon a time", "-n", "0", "-c", str(context), "--ignore-eos",
                                     "--temp", "0")
        check(found["context"] == context and found["finish_reason"] == "context", f"-c {context}: {found}")
        check(found["usage"]["total_tokens"] == context + 1, f"-c {context}: {found['usage']}")
    text = call("run", "--help")[1].decode()
    check("positions of the KV cache" in text and "last token needs none" in " ".join(text.split()), "run --help says it")


def test_pipes_and_signals():
    # A reader that goes away ends the program quietly and soon.
    command = f'"{PROGRAM}" run -p "Once upon a time" -n 0 --ignore-eos 2>err.txt | head -c 10; echo "${{PIPESTATUS[0]}}"'
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, cwd=folder,
                              env={**os.environ, "MEGADECODE_MODEL": os.path.abspath(MODEL)})
        check(done.stdout[10:].strip() == b"0", f"| head -c 10: {done.stdout!r}")
        check(open(f"{folder}/err.txt", "rb").read() == b"", "| head says nothing")
    done = subprocess.run(f'"{PROGRAM}" tokenize hello >/dev/full', shell=True, capture_output=True, timeout=60)
    check(done.returncode == 1 and b"standard output" in done.stderr, f"a full disk: {done}")
    # Ctrl-C: the text so far stays, JSON is whole.
    for number in [signal.SIGINT, signal.SIGTERM]:
        process = subprocess.Popen([PROGRAM, "run", "-p", "Once upon a time", "-n", "0", "--ignore-eos", "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.7)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        check(process.returncode == 1, f"signal {number}: exit {process.returncode} {err!r}")
        check(json.loads(out)["finish_reason"] == "cancelled", f"signal {number}: {out[:200]!r}")


def on_terminal(args, env, interrupt_after=None):
    """Runs the program on a pseudo-terminal: its exit status and everything it wrote."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm", "MEGADECODE_MODEL": MODEL, **env})
        os.execv(PROGRAM, [PROGRAM, *args])
    out, start = b"", time.time()
    while time.time() - start < 60:
        if interrupt_after and time.time() - start > interrupt_after:
            os.write(fd, b"\x03")
            interrupt_after = None
        if not select.select([fd], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(fd, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        out += piece
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out


def test_terminal():
    words = ["run", "-p", "Once upon a time", "-n", "12", "--temp", "0"]
    text = call("run", *words[1:])[1].replace(b"\n", b"\r\n")
    code, out = on_terminal(words, {})
    check(code == 0 and b"loading [" in out, f"a bar while loading: {out!r}")
    check(out.endswith(b"\r\x1b[K\x1b[2mOnce upon a time\x1b[0m" + text), f"bar cleared, prompt dimmed, text: {out!r}")
    code, out = on_terminal(words, {"NO_COLOR": "1"})
    check(out.endswith(b"Once upon a time" + text) and b"\x1b[2m" not in out, f"NO_COLOR: {out!r}")
    code, out = on_terminal(["run", "-p", "Once", "-n", "0", "--ignore-eos"], {}, interrupt_after=0.7)
    out = out.replace(b"^C", b"")  # the terminal's own, before or after the program's last newline
    check(code == 1 and out.endswith(b"\r\n"), f"Ctrl-C stops: exit {code}, {out[-80:]!r}")


def test_inspect():
    code, found, err = call_json("inspect", "-m", MODEL, "--plan")
    check(code == 0 and err == "", f"inspect: {code} {err}")
    config = json.load(open(f"{MODEL}/config.json", encoding="utf-8"))
    for key, name in [("layers", "num_hidden_layers"), ("hidden", "hidden_size"), ("ffn", "intermediate_size"),
                      ("vocab", "vocab_size"), ("q_heads", "num_attention_heads"), ("kv_heads", "num_key_value_heads"),
                      ("head_dim", "head_dim"), ("context", "max_position_embeddings")]:
        check(found[key] == config[name], f"{key}: {found[key]}")
    matrices = {m["path"]: m for m in found["matrices"]}
    check(len(matrices) == 44 and set(matrices) == {k for k in config["quantization"] if "." in k or k == "lm_head"},
          f"matrices: {len(matrices)}")
    total = 0
    for path, m in matrices.items():
        check(m["bits"] == config["quantization"][path]["bits"], f"{path}: {m}")
        check(m["bytes"] == m["rows"] * m["cols"] * m["bits"] // 8 + m["rows"] * m["cols"] // 64 * 4, f"{path}: {m}")
        total += m["bytes"]
    # A token reads every matrix but the embedding, of which it reads one row, and 13 norms of 256 bf16.
    one_row = 256 + 256 // 64 * 4
    expected = total - matrices["model.embed_tokens"]["bytes"] + one_row + 13 * 256 * 2
    check(found["bytes_per_token"] == expected, f"bytes_per_token {found['bytes_per_token']}, by hand {expected}")
    check(found["kv"]["bytes_per_position_bf16"] == 6 * 2 * 2 * 64 * 2, f"kv: {found['kv']}")
    check(found["kv"]["bits"] == [8, 8, 4, 4, 4, 8], f"kv bits: {found['kv']}")
    check(found["kv"]["bytes_per_position"] == sum(2 * (128 * b // 8 + 2 * 4) for b in [8, 8, 4, 4, 4, 8]), "kv bytes")
    check(found["eos"] == [1, 3] and found["bos"] == 0 and not found["tied_head"], f"tokens: {found['eos']}")
    stages = [s["stage"] for s in found["plan"]]
    check(stages[0] == "embed" and stages[-1] == "head" and stages.count("qkv") == 6, f"plan: {stages}")
    code, out, err = call("inspect", "-m", MODEL)
    check(code == 0 and b"model.layers.5.mlp.down_proj" in out and str(expected).encode() in out, "inspect as text")
    check(b"gate_up" in call("inspect", "--plan")[1], "inspect --plan as text")


def test_tokenize():
    check(call("tokenize", "-m", MODEL, "Once upon a time")[1] == b"0 629 515 262 457\n", "tokenize")
    check(call_json("tokenize", "Once upon a time")[1] == {"ids": [0, 629, 515, 262, 457]}, "tokenize --json")
    check(call_json("tokenize", "Once", "upon a time", "--no-special")[1]["ids"] == [629, 515, 262, 457], "--no-special")
    check(call("tokenize", "--decode", "--no-special", "0 629 515 262 457")[1] == b"Once upon a time", "--decode")
    check(call("tokenize", "--decode", "629")[1] == b"Once", "--decode of one")
    check(call_json("tokenize", "--decode", stdin=b'{"ids":[0,629]}')[1] == {"text": "<s>Once"}, "--decode from JSON")
    # Standard input byte for byte: newlines and NULs are text; what comes back is what went in.
    for text in [b"two\nlines\n", b"a\0b", "caf\u00e9 \U0001f60a\r\n\t".encode(), b"\n", b" " * 70 + b"x" * 3000]:
        ids = call("tokenize", "--no-special", stdin=text)[1]
        check(call("tokenize", "--decode", stdin=ids)[1] == text, f"there and back: {text[:40]!r}")
    check(call_json("tokenize", "--no-special", stdin=b"")[1] == {"ids": []}, "nothing")
    check(call_json("tokenize", "--decode", stdin=b'{"ids": []}')[1] == {"text": ""}, "no ids")
    refused(2, "tokenize", "--decode", stdin=b" \n", say="found nothing")
    refused(2, "tokenize", "--decode", "629 abc 515", say='found "abc"')
    refused(2, "tokenize", "--decode", "629 4096", say=["found 4096", "below 4096"])
    check(call("tokenize", "--decode", "--no-special", "[0, 4095]")[0] == 0, "the last id")
    # tokenizer.json alone is enough.
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{MODEL}/tokenizer.json", "rb") as source, open(f"{folder}/tokenizer.json", "wb") as copy:
            copy.write(source.read())
        check(call("tokenize", "-m", folder, "Once upon a time")[1] == b"0 629 515 262 457\n", "tokenizer.json alone")


run_all("test_cli", globals())
