"""megadecode synth: what it writes, what it says, and what it refuses. Usage: test_synth.py PROGRAM"""
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "vocab_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": [1, 511],
    "quantization": {"bits": 4, "group_size": 64, "model.layers.1.mlp.down_proj": {"bits": 8, "group_size": 64}},
}


def synth(*args, code=0):
    done = subprocess.run([PROGRAM, "synth", *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (args, done)
    return done


def shapes(folder):
    data = open(os.path.join(folder, "model.safetensors"), "rb").read()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}, hashlib.sha256(data).hexdigest()


with tempfile.TemporaryDirectory() as tmp:
    path = lambda name: os.path.join(tmp, name)
    json.dump(CONFIG, open(path("config.json"), "w"))

    done = synth("--config", path("config.json"), "-o", path("a"), "--seed", "5", "--json")
    out = json.loads(done.stdout)
    assert out["dir"] == path("a") and out["seconds"] >= 0, out
    found, hash_a = shapes(path("a"))
    # 2 layers x (7 matrices x 3 tensors + 2 norms), embedding and head x 3, final norm
    assert len(found) == 2 * (7 * 3 + 2) + 2 * 3 + 1, len(found)
    assert found["model.layers.0.mlp.down_proj.weight"] == [128, 256 * 4 // 32]
    assert found["model.layers.1.mlp.down_proj.weight"] == [128, 256 * 8 // 32]
    assert found["model.layers.1.mlp.down_proj.scales"] == [128, 4]

    done = synth("--config", path("config.json"), "-o", path("b"), "--seed", "5")
    assert done.stdout == "" and "written in" in done.stderr, done
    assert shapes(path("b"))[1] == hash_a
    synth("--config", path("config.json"), "-o", path("c"), "--seed", "6")
    assert shapes(path("c"))[1] != hash_a

    synth("--config", path("config.json"), "-o", path("d"), "--bits", "8")
    assert shapes(path("d"))[0]["model.layers.0.mlp.down_proj.weight"] == [128, 256 * 8 // 32]

    # what is written runs
    run = subprocess.run([PROGRAM, "run", "-m", path("a"), "-p", "Once", "-n", "4", "--temp", "0", "-t", "1"],
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stdout.strip(), run

    # another model's tokenizer gives ids that this one has no rows for
    shutil.copy("models/fairytales/tokenizer.json", path("a"))
    run = subprocess.run([PROGRAM, "run", "-m", path("a"), "-p", "Once", "-n", "4", "-t", "1"], capture_output=True, text=True)
    assert run.returncode == 1 and "tokenizer.json" in run.stderr and '"vocab_size" is 512' in run.stderr, run
    for command in [["chat"], ["serve", "--port", "0"], ["verify", "--against", "reference"]]:
        done = subprocess.run([PROGRAM, *command, "-m", path("a")], input="", capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and '"vocab_size" is 512: it is not this model\'s tokenizer' in done.stderr, (command, done)

    before = sorted(os.listdir(tmp))
    assert "exists already" in synth("--config", path("config.json"), "-o", path("a"), code=2).stderr
    assert "--config" in synth("-o", path("e"), code=2).stderr
    assert "-o DIR" in synth("--config", path("config.json"), code=2).stderr
    assert "7" in synth("--config", path("config.json"), "-o", path("e"), "--bits", "7", code=2).stderr
    assert "bits" in synth("--config", path("config.json"), "-o", path("e"), "--bits", "9", code=2).stderr
    failed = synth("--config", path("none.json"), "-o", path("e"), "--json", code=1)
    assert json.loads(failed.stdout)["error"]["status"] == "not_found", failed
    # what stands beside the config is taken along, and refused where it is broken
    for name in ["tokenizer.json", "generation_config.json", "kv_config.json"]:
        for spoil in [lambda p: os.symlink("nowhere", p), os.mkdir, lambda p: open(p, "w").write("[")]:
            spoil(path(name))
            failed = synth("--config", path("config.json"), "-o", path("e"), code=1)
            assert name in failed.stderr, (name, failed)
            shutil.rmtree(path(name)) if os.path.isdir(path(name)) else os.remove(path(name))

    # a tokenizer that is none, and another model's, are said before anything is written
    for text, say in [('{}', "expected an object"), (open("models/fairytales/tokenizer.json").read(), 'has the token 512, but config.json\'s "vocab_size" is 512')]:
        open(path("tokenizer.json"), "w").write(text)
        failed = synth("--config", path("config.json"), "-o", path("e"), code=1)
        assert f"{tmp}: tokenizer.json" in failed.stderr and say in failed.stderr and not os.path.exists(path("e")), failed

    for name in ["tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(f"models/fairytales/{name}", path(name))
    json.dump({**CONFIG, "vocab_size": 4096}, open(path("config.json"), "w"))
    synth("--config", path("config.json"), "-o", path("words"))
    said = subprocess.run([PROGRAM, "tokenize", "-m", path("words"), "Once upon a time"], capture_output=True, text=True)
    assert said.stdout == "0 629 515 262 457\n", said
    shutil.rmtree(path("words"))
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        os.remove(path(name))
    json.dump(CONFIG, open(path("config.json"), "w"))

    # a limit of files' sizes, and a file system that is too small: said, and nothing is left
    limited = subprocess.run(["bash", "-c", f'ulimit -f 64; exec "{PROGRAM}" synth --config "$0" -o "$1"',
                              path("config.json"), path("e")], capture_output=True, text=True, timeout=120)
    assert limited.returncode == 1 and "File too large" in limited.stderr, limited
    os.mkdir(path("small"))
    mount = f'mount -t tmpfs -o size=200k none "$1" && "{PROGRAM}" synth --config "$0" -o "$1/m"; s=$?; ls -A "$1"; exit $s'
    full = subprocess.run(["unshare", "-rm", "sh", "-c", mount, path("config.json"), path("small")],
                          capture_output=True, text=True, timeout=120)
    if "megadecode" in full.stderr:
        assert full.returncode == 1 and full.stdout == "" and "MB free" in full.stderr, full
    else:
        print(f"test_synth: no small file system here ({full.stderr.strip()}); that part is skipped")
    os.rmdir(path("small"))

    json.dump({**CONFIG, "model_type": "gemma3"}, open(path("config.json"), "w"))
    assert "gemma3" in synth("--config", path("config.json"), "-o", path("e"), code=1).stderr
    assert sorted(os.listdir(tmp)) == before, "something was left behind"

print("synth: ok")
