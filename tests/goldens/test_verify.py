#!/usr/bin/env python3
"""`megadecode verify` against MLX's own logits: every engine and thread count passes the gates, with one digest."""
import json
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests")
from checks import check, finish

PROGRAM = sys.argv[1]
MODEL = "models/fairytales"
GOLDENS = "tests/goldens/data"
KEYS = {"steps", "agree", "legal_flips", "kl_mean", "kl_max", "max_abs_diff", "nan", "deterministic", "digest", "pass"}
CASES = [  # golden, kv, steps, most mean KL
    ("greedy-bf16-kv", "none", 100, 5e-4),
    ("text-bf16-kv", "none", 193, 5e-4),
    ("greedy-quantized-kv", "snapshot", 100, 6e-3),
    ("text-quantized-kv", "snapshot", 193, 6e-3),
]
ENGINES = [("reference", 1), ("ops", 1), ("ops", 2), ("resident", 1), ("resident", 2), ("resident", 4)]


def verify(golden, kv, engine, threads):
    command = [PROGRAM, "verify", "-m", MODEL, "--golden", f"{GOLDENS}/{golden}.json", "--kv", kv, "--engine", engine,
               "-t", str(threads), "--device", "cpu", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        print(done.stdout, done.stderr)
        return done.returncode, {}


for golden, kv, steps, most_kl in CASES:
    digests = {}
    for engine, threads in ENGINES:
        name = f"{golden} {engine} {threads} threads"
        code, found = verify(golden, kv, engine, threads)
        check(code == 0, f"{name}: exit {code}")
        check(KEYS <= set(found), f"{name}: keys {sorted(found)}")
        if not KEYS <= set(found):
            continue
        check(found["steps"] == steps, f"{name}: {found['steps']} steps")
        check(found["agree"] + found["legal_flips"] >= 0.98 * steps, f"{name}: {found['agree']} agree")
        check(found["kl_mean"] <= most_kl, f"{name}: KL {found['kl_mean']}")
        check(found["nan"] == 0 and found["deterministic"] and found["pass"], f"{name}: {found}")
        digests.setdefault(found["digest"], []).append(name)
    check(len(digests) == 1, f"{golden}: {len(digests)} digests: {digests}")
    print(f"{golden}: {len(ENGINES)} engines, digest {list(digests)[0] if digests else '-'}, "
          f"{found.get('agree')} agree, {found.get('legal_flips')} legal, KL {found.get('kl_mean', 0):.3g}")

# Without --kv a golden is run with the cache it was made with.
done = subprocess.run([PROGRAM, "verify", "-m", MODEL, "--golden", f"{GOLDENS}/greedy-quantized-kv.json", "--device", "cpu"],
                      capture_output=True, text=True, timeout=300)
check(done.returncode == 0 and "pass" in done.stdout, f"the golden's own cache: {done}")

# A golden of another model, and a wrong file, are refused with the field's name.
done = subprocess.run([PROGRAM, "verify", "-m", MODEL, "--golden", f"{MODEL}/config.json", "--json"],
                      capture_output=True, text=True, timeout=60)
check(done.returncode == 1 and "prefill_ids" in done.stderr + done.stdout, f"wrong golden: {done}")


def write_norm(folder, value):
    """The final norm's first weights."""
    with open(f"{folder}/model.safetensors", "r+b") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        file.seek(8 + size + json.loads(file.read(size))["model.norm.weight"]["data_offsets"][0])
        file.write(value)


# Logits that are no numbers are nothing to be right about, whoever else computes them.
with tempfile.TemporaryDirectory() as folder:
    shutil.copytree(MODEL, folder, dirs_exist_ok=True)
    # A weight that is no number is refused before anything is computed, by whatever reads it.
    write_norm(folder, b"\x80\x3f\xc0\x7f")  # 1, NaN
    for command in [["verify", "--against", "reference", "--device", "cpu"], ["inspect"], ["run", "-p", "a", "-n", "1", "--device", "cpu"]]:
        done = subprocess.run([PROGRAM, *command, "-m", folder], capture_output=True, text=True, timeout=60)
        check(done.returncode == 1 and not done.stdout and done.stderr.rstrip().endswith(
            f"{folder}/model.safetensors: model.norm.weight: row 0, column 1: found NaN, expected a finite number"), f"NaN weight: {done}")
    write_norm(folder, b"\x7f\x7f" * 256)  # the greatest bf16: the norm overflows
    for more in [[], ["--json"]]:
        done = subprocess.run([PROGRAM, "verify", "-m", folder, "--against", "reference", "--device", "cpu", "--steps", "2", *more],
                              capture_output=True, text=True, timeout=60)
        check(done.returncode == 1 and ("NaN" in done.stdout or more and not json.loads(done.stdout)["pass"]), f"NaN: {done}")
    # JSON has no infinity and no NaN: such figures are null, and the object comes all the same.
    done = subprocess.run([PROGRAM, "verify", "-m", folder, "--golden", f"{GOLDENS}/greedy-bf16-kv.json", "--device", "cpu", "--json"],
                          capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout)
    check(done.returncode == 1 and found["nan"] == 100 and found["kl_mean"] is None and not found["pass"], f"NaN in a golden's run: {done}")

finish("test_verify")
