"""The server under faults: each ends one request or connection with an error, the others have their right answers, and
afterwards nothing is left of it. Usage: test_fault_server.py PROGRAM FAULTS_LIBRARY"""
import http.client
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from harness import MODEL, PROGRAM, Server, main, together, wait_until
from steer import FOREVER, Faults

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
EXHAUSTIVE = bool(os.environ.get("MEGADECODE_EXHAUSTIVE"))
ENDLESS = {"1": -100, "3": -100}  # the end-of-text tokens, forbidden
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
STORY = [{"role": "user", "content": "Once upon a time"}]


class Faulty(Server):
    """A server that the faults of `self.faults` can be done to."""

    def __init__(self, *args, **more):
        self.faults = Faults()
        self.template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        self.template.write(TEMPLATE)
        self.template.flush()
        env = {**self.faults.env(), "MEGADECODE_THREADS": "1"}
        super().__init__("--chat-template-file", self.template.name, *args, env=env, **more)

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def quiet(self):
        """Waits until no request runs and no connection is open but the one that asks."""
        wait_until(lambda: self.metric("connections") <= 1 and self.metric("requests_running") == 0, 20, "quiet")
        time.sleep(0.05)


def outcome(server, path, body):
    """("ok", what is the same each time), ("error", status) or ("cut", why)."""
    try:
        response = server.post(path, body, timeout=60)
    except (OSError, http.client.HTTPException) as problem:
        return "cut", repr(problem)
    text = response.data.decode()
    if response.status != 200:
        assert json.loads(text)["error"]["message"], text
        return "error", response.status
    if not body.get("stream"):
        answer = json.loads(text)
        return "ok", answer.get("choices") or {k: v for k, v in answer.items() if k != "id"}
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        last = json.loads(events[-1]) if events else {"error": {"message": "nothing came"}}
        assert "error" in last, "a stream that ends as if it were whole: " + text
        return "error", last["error"]["message"]
    return "ok", [json.loads(event)["choices"] for event in events[:-1]]


def settled(result):
    """Streams are cut into events by time: what they say together counts."""
    kind, value = result
    if kind == "ok" and isinstance(value, list) and value and isinstance(value[0], list):
        return kind, "".join(c.get("text") or c.get("delta", {}).get("content") or "" for e in value for c in e)
    return result


REQUESTS = [
    ("/tokenize", {"content": "Once upon a time"}),
    ("/detokenize", {"tokens": [629, 515, 262, 457]}),
    ("/apply-template", {"messages": STORY, "tools": [FUNCTION]}),
    (COMPLETE, {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, "logprobs": 2, "stop": ["zzzz"]}),
    (COMPLETE, {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, "stream": True, "echo": True}),
    (CHAT, {"messages": STORY, "tools": [FUNCTION], "max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 2}),
    (CHAT, {"messages": STORY, "max_tokens": 4, "temperature": 0, "stream": True}),
    (CHAT, {"messages": STORY, "max_tokens": 40, "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}),
]


def every_allocation_of_a_request():
    failures = tried = cut = same = 0
    with Faulty("--parallel", "2") as server:
        faults = server.faults
        expected = []
        for path, body in REQUESTS:
            for _ in range(3):
                right = settled(outcome(server, path, body))
            assert right[0] == "ok", (path, right)
            expected.append(right)
        server.quiet()
        before = faults.live()
        for (path, body), right in zip(REQUESTS, expected):
            faults.set("MEMORY", FOREVER)
            outcome(server, path, body)
            server.quiet()
            calls = faults.calls("MEMORY")
            spread = 1 if EXHAUSTIVE else max(1, calls // 24)
            for first in range(1, calls + 1, spread):
                faults.set("MEMORY", first, first + (2 if first % 3 == 0 else 0))
                found = settled(outcome(server, path, body))
                failures += faults.clear("MEMORY")
                tried += 1
                cut += found[0] == "cut"
                same += found[0] == "ok"
                assert found[0] != "ok" or found == right, (path, first, found, right)
                assert server.process.poll() is None, "the server died: " + "".join(server.lines)
            assert settled(outcome(server, path, body)) == right
        for (path, body), right in zip(REQUESTS, expected):
            assert settled(outcome(server, path, body)) == right
        server.quiet()
        left = faults.live() - before
        assert failures > 100 and abs(left) < 60, (failures, left)
        print("        %d requests, %d allocations failed: %d cut off, %d answered all the same; %d blocks more than before"
              % (tried, failures, cut, same, left))


def a_failed_step_ends_its_streams_alone():
    """The rows of the embedding are read in each step: a failed read fails the step."""
    with Faulty("--parallel", "2") as server:
        body = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "stream": True, "logit_bias": ENDLESS}
        right = settled(outcome(server, COMPLETE, body))
        for first in (9, 30, 70):
            server.faults.set("READ", first)
            found = [settled(r) for r in together([lambda: outcome(server, COMPLETE, body)] * 4)]
            assert server.faults.clear("READ") == 1
            errors = [r for r in found if r != right]
            assert 1 <= len(errors) <= 2, found  # those that were in that step; the two that waited go on
            for kind, message in errors:
                assert kind == "error" and ("model.safetensors" in str(message) or message == 500), found
        assert settled(outcome(server, COMPLETE, body)) == right
        assert server.metric("requests_running") == 0


def no_threads_for_connections():
    with Faulty() as server:
        right = server.complete(max_tokens=4, temperature=0)["choices"]
        server.faults.set("THREAD", 1, FOREVER)
        for _ in range(5):
            assert outcome(server, COMPLETE, {"prompt": "x"})[0] == "cut"
        assert server.faults.clear("THREAD") >= 5
        assert server.complete(max_tokens=4, temperature=0)["choices"] == right


def reset(sock):
    """Closes with a reset instead of an orderly end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def clients_leave_in_every_phase():
    long_prompt = {"prompt": "Once upon a time " * 600, "max_tokens": 200, "logit_bias": ENDLESS, "stream": True}
    body = json.dumps(long_prompt).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    short = json.dumps({**long_prompt, "prompt": "Once"}).encode()
    short = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(short) + short
    with Faulty("--parallel", "2", "--queue", "8") as server:
        right = server.complete(max_tokens=4, temperature=0)["choices"]
        server.quiet()
        fds = server.fds()
        # What is sent before the client leaves, and how long it stays: connected, within the head, between head and
        # body, within the body, waiting or in prefill, decoding, reading.
        phases = [(b"", 0), (head[:40], 0), (head, 0), (head + body[:2000], 0), (head + body, 0), (head + body, 0.1),
                  (short, 0.02), (short, 0.15)]
        for times in range(3):
            sockets = []
            for data, stay in phases * 2:
                sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
                sock.sendall(data)
                time.sleep(stay)
                sockets.append(sock)
            for i, sock in enumerate(sockets):
                (reset if (i + times) % 2 else socket.socket.close)(sock)
        wait_until(lambda: server.metric("requests_running") == 0 and server.metric("requests_queued") == 0, 20, "all are gone")
        server.quiet()
        assert server.fds() <= fds, (server.fds(), fds)
        assert server.complete(max_tokens=4, temperature=0)["choices"] == right


def no_more_file_descriptors():
    with Faulty() as server:
        right = server.complete(max_tokens=4, temperature=0)["choices"]
        server.quiet()
        used = server.fds()
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 9, used + 9))
        sockets = []
        for _ in range(40):  # some are accepted, some wait, some are closed at once
            sock = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            sock.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
            sockets.append(sock)
        time.sleep(0.5)
        assert server.process.poll() is None
        for sock in sockets:
            sock.close()
        wait_until(lambda: outcome(server, COMPLETE, {"prompt": "x", "max_tokens": 1})[0] == "ok", 30, "it answers again")
        assert server.complete(max_tokens=4, temperature=0)["choices"] == right
        server.quiet()
        assert server.fds() <= used, (server.fds(), used)


def asked_to_end_in_every_phase():
    # While loading: every read gives a byte, which takes seconds.
    faults = Faults()
    faults.set("SHORT", 1, FOREVER)
    with Server(env=faults.env(), loaded=False) as server:
        assert server.get("/health").status == 503
        time.sleep(0.2)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0 and time.monotonic() - start < 15
    # While a prompt is computed, and while an answer is: what was accepted ends whole.
    for prompt in ("Once upon a time " * 500, "Once"):
        with Server("--drain", "300", env={"MEGADECODE_THREADS": "1"}) as server:
            answer = []
            body = {"prompt": prompt, "max_tokens": 400, "temperature": 0, "logit_bias": ENDLESS}

            def end():
                wait_until(lambda: server.metric("requests_running") == 1, 20)
                server.process.send_signal(signal.SIGTERM)

            together([lambda: answer.append(outcome(server, COMPLETE, body)), end])
            assert answer[0][0] == "ok", answer
            assert server.process.wait(20) == 0


def no_memory_to_start():
    """Whatever fails while it starts: an orderly end with a message, or a server."""
    for first in list(range(1, 30, 3)) + [60, 300, 1500, 6000, 20000, 36000]:
        faults = Faults()
        faults.set("MEMORY", first, FOREVER)
        process = subprocess.run([PROGRAM, "serve", "-m", MODEL, "--port", "0"], stderr=subprocess.PIPE, timeout=60,
                                 env={**os.environ, **faults.env()})
        assert process.returncode in (1, 2) and process.stderr, (first, process.returncode, process.stderr)


if __name__ == "__main__":
    main(every_allocation_of_a_request, a_failed_step_ends_its_streams_alone, no_threads_for_connections,
         clients_leave_in_every_phase, no_more_file_descriptors, asked_to_end_in_every_phase, no_memory_to_start)
