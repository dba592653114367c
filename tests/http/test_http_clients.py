"""OpenAI's own JavaScript client, and curl where it is installed."""
import json
import os
import shutil
import subprocess
import tempfile

import clients
import scripted_model
from harness import Server, main
from test_http_answers import SCRIPTS, TEMPLATE

server = scripted = None


def openai():
    folder = clients.install()
    if folder:
        base = "http://127.0.0.1:%d/v1"
        result = subprocess.run(["node", os.path.abspath("tests/http/clients/openai.mjs"), base % server.port, base % scripted.port],
                                cwd=folder, capture_output=True, text=True, timeout=120)
        print(result.stdout, end="")
        assert result.returncode == 0, result.stderr


def curl():
    if not shutil.which("curl"):
        print("SKIPPED: curl is not installed")
        return
    # As people type it: without a Content-Type of JSON, with a body beyond the size at which curl asks "Expect" first.
    def run(data, *more):
        return subprocess.run(["curl", "-sS", *more, "http://127.0.0.1:%d/v1/completions" % server.port, "--data-binary", "@-"],
                              input=data, capture_output=True, text=True, timeout=60)
    assert "choices" in json.loads(run('{"prompt": "Once", "max_tokens": 2}').stdout)
    big = run('{"prompt": "%s", "max_tokens": 2}' % ("x" * 2_000_000))
    assert json.loads(big.stdout)["error"]["code"] == "context_length_exceeded", big
    chunked = run('{"prompt": "Once", "max_tokens": 2}', "-H", "Transfer-Encoding: chunked")
    assert "choices" in json.loads(chunked.stdout), chunked


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        scripted_model.write(folder + "/xml", SCRIPTS, TEMPLATE, {"inside": "<think>"})
        with Server() as server, Server(model=folder + "/xml") as scripted:
            main(openai, curl)
