#!/usr/bin/env python3
"""The CUDA kernels' own text, run on the host: NVRTC and driver are tests/fakes, which compile it with clang++ and let threads take turns
(emulate.hpp). The gates are those of a GPU (tests/gpu), in small: launches a stage and one resident kernel give the same bits, for several
columns and numbers of SMs; logits are near the CPU engine's; contexts across blocks of attention; prompts in launches of their own; models
with groups of 32 and with weights that are not quantized; a ring shorter than what the warps take of it at once. Then some of it again in
disorder (emulate_disorder.hpp), which may not change a bit.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
TESTS = os.path.join(os.path.dirname(PROGRAM), "tests")
GATES = os.path.join(TESTS, "gpu_gates")
HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "..", "models", "fairytales")


def gates(folder, *arguments, sms=2, seed=0, tune=""):
    env = {**os.environ, "FAKE_NVRTC": os.path.join(HERE, "..", "fakes"), "LD_LIBRARY_PATH": os.path.join(TESTS, "fakes"),
           "FAKE_CUDA_SMS": str(sms), "XDG_CACHE_HOME": os.path.join(folder, "cache"), "FAKE_CUDA_SEED": str(seed), "MEGADECODE_CUDA_TUNE": tune}
    if seed:
        env["GATES_DEADLINE_MS"] = "20"  # 200,000 turns: what a missing barrier loses is soon said to be lost
    done = subprocess.run([GATES, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    results = [line for line in done.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    print("\n".join((f"seed {seed}: " if seed else "") + line for line in results), flush=True)
    assert done.returncode == 0 and results and all(line.startswith("ok ") for line in results), f"{arguments}, seed {seed}: {done.stdout}"
    return results


def disorder(folder, seeds, *arguments):
    fixed = gates(folder, *arguments, sms=3)
    for seed in seeds:
        assert gates(folder, *arguments, sms=3, seed=seed) == fixed, f"seed {seed}: {arguments}"


def synthetic(folder, name, quantization, **changes):
    with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as file:
        shape = json.load(file)
    shape.pop("quantization_config", None)
    shape.pop("quantization", None)
    shape.update({"num_hidden_layers": 2, **changes})
    if quantization:
        shape["quantization"] = quantization
    config, model = os.path.join(folder, name + ".json"), os.path.join(folder, name)
    with open(config, "w", encoding="utf-8") as file:
        json.dump(shape, file)
    subprocess.run([PROGRAM, "synth", "--config", config, "-o", model], check=True, stdout=subprocess.DEVNULL)
    return model


def main():
    if not shutil.which("clang++") or not os.path.exists(GATES):
        print("SKIPPED: needs clang++ and gpu_gates")
        return
    with tempfile.TemporaryDirectory() as folder:
        gates(folder, "equal", MODEL, "1", "0")
        gates(folder, "reference", MODEL, "8", "cpu-resident", "1e-3")
        gates(folder, "nan", MODEL)
        # Wide enough for all warps to share a row of the down projection.
        groups = synthetic(folder, "groups-32", {"group_size": 32, "bits": 4, "mode": "affine"}, intermediate_size=2048,
                           vocab_size=1003)
        gates(folder, "equal", groups, "1", "1")
        gates(folder, "reference", groups, "4", "cpu-resident", "1e-3")
        gates(folder, "context", groups, "130")
        disorder(folder, (1,), "equal", groups, "1", "3", "1")  # one column
        disorder(folder, (3,), "equal", groups, "1", "3")
        disorder(folder, (5,), "prefill", groups, "17")
        # Eight warps' shares of two tiles of the head are longer than this ring, as on Llama-3.2-3B with several sequences.
        tall = synthetic(folder, "short-ring", {"group_size": 64, "bits": 8, "mode": "affine"}, num_hidden_layers=1, hidden_size=1024,
                         intermediate_size=128, num_attention_heads=2, num_key_value_heads=1, vocab_size=2400)
        gates(folder, "equal", tall, "1", "0", tune="RING_MOST=2")
        unquantized = synthetic(folder, "bf16", None)
        gates(folder, "equal", unquantized, "1", "0")
        gates(folder, "reference", unquantized, "4", "cpu-resident", "1e-3")


main()
