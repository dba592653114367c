"""A server with many short requests of every kind: memory and file descriptors stay what they were. 300 requests; 10,000
with $MEGADECODE_LONG (tools/check-long); or $MEGADECODE_REQUESTS. Usage: test_long_server.py PROGRAM"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
from harness import Server, main, together, wait_until

TOTAL = int(os.environ.get("MEGADECODE_REQUESTS") or (10000 if os.environ.get("MEGADECODE_LONG") else 300))
CLIENTS = 6 if TOTAL >= 300 else 1  # few: under valgrind, which runs one thread at a time


def fds(server):
    return len(os.listdir("/proc/%d/fd" % server.process.pid))


def one(server, number):
    """Request `number`: streams, whole answers, errors and tokens in turn; a few clients leave early."""
    prompt = "Once upon a time, number %d" % (number % 40)
    body = {"prompt": prompt, "max_tokens": 1 + number % 6, "seed": number % 40}
    kind = number % 8
    if kind < 3:
        return server.ok("/v1/completions", body)["choices"][0]["text"]
    if kind == 3:
        events = list(server.stream("/v1/completions", body))
        assert events[-1] == "[DONE]"
        return "".join(e["choices"][0]["text"] for e in events[:-1])
    if kind == 4:
        return server.ok("/tokenize", {"content": prompt})["count"]
    if kind == 5:
        return server.refused("/v1/completions", {"prompt": prompt, "temperature": 9}, param="temperature")
    if kind == 6:
        server.open_post("/v1/completions", {**body, "stream": True}).close()
        return None
    return server.ok("/v1/completions", {**body, "logprobs": 2})["choices"][0]["text"]


def memory_is_flat():
    with Server("--parallel", "4", "--queue", "100", env={"MEGADECODE_THREADS": "1"}) as server:
        answers, marks = {}, {}
        last = 0
        for percent in (1, 10, 50, 100):
            upto = TOTAL * percent // 100

            def client(c):
                for number in range(last + c, upto, CLIENTS):
                    key, found = (number % 40, number % 8, number % 6), one(server, number)
                    assert answers.setdefault(key, found) == found, (key, found, answers[key])

            together([lambda c=c: client(c) for c in range(CLIENTS)])
            wait_until(lambda: server.metric("requests_running") == 0 and server.metric("connections") <= 1, 30, "quiet")
            time.sleep(0.2)
            marks[percent] = (server.rss_kib(), fds(server))
            last = upto
        print("        %d requests: RSS %s KiB at 1, 10, 50, 100 %%, %s fds"
              % (TOTAL, ", ".join(str(m[0]) for m in marks.values()), ", ".join(str(m[1]) for m in marks.values())))
        assert marks[100][1] <= marks[1][1] + 1, marks
        assert marks[100][0] < marks[50][0] * 1.05 + 2048, marks


if __name__ == "__main__":
    main(memory_is_flat)
