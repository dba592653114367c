"""wrk against the server: many connections for some seconds; nothing is lost and every answer is the right one. (The long
load is tools/load-test's.)"""
import json
import os
import re
import shutil
import subprocess
import time

from harness import Server, main

SECONDS, CONNECTIONS = 3, 24
server = None


def wrk(*args, **env):
    result = subprocess.run(["wrk", "-t2", "-c%d" % CONNECTIONS, "-d%ds" % SECONDS, "--timeout", "20s", *args], capture_output=True, text=True,
                            timeout=60, env={**os.environ, **env})
    assert result.returncode == 0, result.stderr
    return result.stdout


def health():
    said = wrk("http://127.0.0.1:%d/health" % server.port)
    assert "Socket errors" not in said and "Non-2xx" not in said, said
    assert int(re.search(r"(\d+) requests in", said).group(1)) > 0, said


def completions():
    text = server.complete(max_tokens=8, temperature=0)["choices"][0]["text"]
    said = wrk("-s", "tests/http/clients/completions.lua", "http://127.0.0.1:%d" % server.port, EXPECTED='"text":%s' % json.dumps(text))
    found = re.search(r"RESULT good=(\d+) bad=(\d+) connect=(\d+) read=(\d+) write=(\d+) timeout=(\d+)", said)
    assert found, said
    assert int(found.group(1)) > 0 and not any(int(found.group(i)) for i in range(2, 7)), said
    # Its last requests were given up half-way: their places are free.
    end = time.monotonic() + 5
    while server.metric("requests_running") + server.metric("requests_queued") > 0:
        assert time.monotonic() < end, "all places are free"
        time.sleep(0.05)


def memory_stays():
    before = server.rss_kib()
    completions()
    assert server.rss_kib() < before + 8192, "%d KiB, then %d" % (before, server.rss_kib())


if __name__ == "__main__":
    if not shutil.which("wrk"):
        print("SKIPPED: wrk is not installed (tools/install-deps test)")
    else:
        with Server() as server:
            main(health, completions, memory_stays)
