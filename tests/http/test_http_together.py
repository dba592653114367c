"""Many requests at a time (row S7): the same answers as alone, places freed, a bounded queue, an orderly end."""
import ctypes
import json
import os
import signal
import time

from harness import Server, main, together, wait_until

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
ENDLESS = {"1": -100, "3": -100}  # the end-of-text tokens, forbidden


def answers_equal_to_those_alone():
    """Public faults: concurrent requests leaked into one another. 16 prompts of many lengths, greedy and sampled, one
    after another in a server that runs one at a time, and all at once in one that decodes eight together."""
    bodies = []
    for i in range(16):
        prompt = " ".join(["Once upon a time there was", "a fox", "and a hen", "in the dark wood"][: 1 + i % 4]) + " %d" % i
        bodies.append({"prompt": prompt + " and so on" * (5 * i), "max_tokens": 20 + i, "seed": i, "logprobs": 3,
                       "temperature": 0 if i % 2 else 1.0, "top_p": 0.95, "presence_penalty": 0.5 * (i % 3)})

    def choice(server, body):
        return server.ok(COMPLETE, body)["choices"][0]

    with Server("--parallel", "1") as alone:
        expected = [choice(alone, body) for body in bodies]
    with Server() as server:
        for _ in range(2):  # the second time from caches
            found = together([lambda body=body: choice(server, body) for body in bodies])
            for body, a, b in zip(bodies, expected, found):
                assert a == b, (body, a, b)
        assert server.metric("decode_columns_total") > 1.5 * server.metric("decode_steps_total"), "columns share steps"
        assert len({a["text"] for a in expected}) == 16
        # Streams too.
        streams = together([lambda body=body: list(server.stream(COMPLETE, body)) for body in bodies])
        for events, a in zip(streams, expected):
            assert "".join(e["choices"][0]["text"] for e in events[:-1]) == a["text"]


def the_same_with_a_quantized_cache():
    bodies = [{"prompt": "Once upon a time, number %d" % i, "max_tokens": 16, "temperature": 0} for i in range(6)]
    with Server("--kv", "snapshot") as server:
        expected = [server.ok(COMPLETE, body)["choices"] for body in bodies]
        assert together([lambda body=body: server.ok(COMPLETE, body)["choices"] for body in bodies]) == expected
        usage = server.ok(COMPLETE, bodies[0])
        assert usage["choices"] == expected[0] and usage["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def a_prefix_is_reused():
    """Public fault: the same prompt a second time hit the whole cache and answered nonsense."""
    with Server() as server:
        story = "Once upon a time, in a land far away, there lived a miller who had three sons. " * 4
        first = server.complete(story, max_tokens=12, temperature=0)
        again = server.complete(story, max_tokens=12, temperature=0)
        n = first["usage"]["prompt_tokens"]
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1 and again["choices"] == first["choices"]
        # A chat that grows.
        messages, cached = [], 0
        for turn in ["Tell me of a fox.", "And then?", "How did it end?"]:
            messages.append({"role": "user", "content": turn})
            body = {"messages": messages, "max_tokens": 16, "temperature": 0}
            answer = server.ok(CHAT, body)
            now = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert now >= cached and (len(messages) == 1 or now > 10), answer["usage"]
            cached = now
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        # A beginning that several share is copied: the first timeline stays.
        other = server.complete(story + "The eldest son", max_tokens=4, temperature=0)
        assert other["usage"]["prompt_tokens_details"]["cached_tokens"] >= n - 2, other["usage"]


def clients_that_go_away():
    """Public faults: a closed connection kept its place and went on generating."""
    with Server("--parallel", "2", "--queue", "8") as server:
        endless = {"prompt": "Once", "max_tokens": 4000, "logit_bias": ENDLESS}
        long = {"prompt": [9] * 3900, "max_tokens": 100}

        def running():
            return server.metric("requests_running")

        # While decoding, streamed and whole; in prefill; in the queue.
        for body, wait in [({**endless, "stream": True}, 0.3), (endless, 0.3), (long, 0.1), ({**long, "stream": True}, 0.1)]:
            before = server.metric("requests_cancelled_total")
            sock = server.open_post(COMPLETE, body)
            wait_until(lambda: running() == 1, 5, "it runs")
            time.sleep(wait)
            sock.close()
            start = time.monotonic()
            wait_until(lambda: running() == 0, 5, "its place is free")
            assert time.monotonic() - start < 1.0, "freed within a second: %.2f s" % (time.monotonic() - start)
            assert server.metric("requests_cancelled_total") == before + 1
        busy = [server.open_post(COMPLETE, endless) for _ in range(2)]
        wait_until(lambda: running() == 2, 5, "both run")
        queued = server.open_post(COMPLETE, endless)
        wait_until(lambda: server.metric("requests_queued") == 1, 5, "one waits")
        queued.close()
        wait_until(lambda: server.metric("requests_queued") == 0, 1.5, "the queue is empty")
        assert running() == 2, "the others go on"
        # One who never reads keeps no other waiting.
        busy[0].close()
        deaf = server.open_post(COMPLETE, {**endless, "stream": True})
        busy[1].close()
        assert server.complete(max_tokens=5)["usage"]["completion_tokens"] == 5
        deaf.close()
        wait_until(lambda: running() == 0, 5, "all are free")


def a_full_queue():
    with Server("--parallel", "1", "--queue", "2") as server:
        endless = {"prompt": "Once", "max_tokens": 4000, "logit_bias": ENDLESS}
        sockets = [server.open_post(COMPLETE, endless)]
        wait_until(lambda: server.metric("requests_running") == 1, 5, "one runs")
        sockets += [server.open_post(COMPLETE, endless) for _ in range(2)]
        wait_until(lambda: server.metric("requests_queued") == 2, 5, "two wait")
        response = server.post(COMPLETE, {"prompt": "x", "max_tokens": 1})
        assert response.status == 429 and 1 <= int(response.getheader("Retry-After")) <= 60, response.status
        assert json.loads(response.data)["error"]["code"] == "queue_full"
        assert server.get("/health").status == 200 and server.ok("/tokenize", {"content": "x"})
        for sock in sockets:
            sock.close()
        wait_until(lambda: server.metric("requests_running") == 0, 5, "all are free")
        assert server.complete(max_tokens=1)["usage"]["completion_tokens"] == 1


def others_stream_on_during_a_prefill():
    with Server() as server:
        stream = server.stream(COMPLETE, {"prompt": "Once", "max_tokens": 3000, "logit_bias": ENDLESS})
        next(stream)
        sock = server.open_post(COMPLETE, {"prompt": [9] * 4000, "max_tokens": 1})
        wait_until(lambda: server.metric("requests_running") == 2, 5, "both run")
        during = 0  # a prefill in one piece would let one event through; slices let one through each, however fast it is
        while server.metric("requests_running") == 2 and during < 50:
            next(stream)
            during += 1
        stream.close()
        sock.close()
        assert during >= 4, "%d events came while the other prompt was computed" % during


def a_request_takes_too_long():
    with Server("--timeout", "1", "--parallel", "1") as server:
        endless = {"prompt": "Once", "max_tokens": 4000, "logit_bias": ENDLESS, "temperature": 0}
        with_time = server.post(COMPLETE, endless)
        if with_time.status != 200:  # a quick machine is done within the second
            assert with_time.status == 500 and json.loads(with_time.data)["error"]["code"] == "timeout", with_time.data
            events = list(server.stream(COMPLETE, endless))
            assert events[-1]["error"]["code"] == "timeout" and "[DONE]" not in events, events[-1]
        assert server.complete(max_tokens=1)["usage"]["completion_tokens"] == 1


def a_worker_that_stands_still():
    """A thread of the engine is stopped from outside while it computes: the step's waits run out, the request gets 500,
    and once the thread goes on, so does the server."""
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt, detach, wall = 0x4206, 0x4207, 17, 0x40000000
    with Server("--deadline", "200", "--threads", "2", "--device", "cpu") as server:
        expected = server.complete(max_tokens=8, temperature=0)["choices"]
        tasks = "/proc/%d/task" % server.process.pid
        worker = 0  # the engine's threads are the last that are not a connection's
        for task in os.listdir(tasks):
            try:
                with open("%s/%s/comm" % (tasks, task)) as name:
                    if not name.read().startswith("MHD"):
                        worker = max(worker, int(task))
            except OSError:
                pass  # a connection's thread that ended meanwhile
        stream = server.stream(COMPLETE, {"prompt": "Once", "max_tokens": 3000, "logit_bias": ENDLESS})
        next(stream)
        if libc.ptrace(seize, worker, None, None) != 0:
            print("SKIPPED: this system lets no process stop a thread of its child")
            stream.close()
            return
        assert libc.ptrace(interrupt, worker, None, None) == 0
        libc.waitpid(worker, None, wall)
        try:
            last = list(stream)[-1]
            assert last["error"]["code"] == "timeout" and last["error"]["type"] == "server_error", last
            assert server.get("/health").status == 200
        finally:
            libc.ptrace(detach, worker, None, None)
        time.sleep(0.5)
        assert server.complete(max_tokens=8, temperature=0)["choices"] == expected
        assert server.metric("requests_failed_total") == 1


def an_orderly_end():
    for number in [signal.SIGTERM, signal.SIGINT]:
        with Server() as server:
            stream = server.stream(COMPLETE, {"prompt": "Once", "max_tokens": 400, "logit_bias": ENDLESS, "temperature": 0})
            events = [next(stream)]
            server.process.send_signal(number)
            wait_until(lambda: server.get("/health").status == 503, 5, "it says that it ends")
            refused = server.post(COMPLETE, {"prompt": "x", "max_tokens": 1})
            assert refused.status == 503 and json.loads(refused.data)["error"]["code"] == "shutting_down"
            events += list(stream)
            assert events[-1] == "[DONE]" and events[-2]["choices"][0]["finish_reason"] == "length"
            server.process.wait(10)
    with Server("--drain", "1") as server:  # the bound: what is not finished by then ends with an error
        stream = server.stream(COMPLETE, {"prompt": "Once", "max_tokens": 4000, "logit_bias": ENDLESS})
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        events = list(stream)
        assert events[-1] == "[DONE]" or events[-1]["error"]["type"] == "overloaded_error", events[-1]
        server.process.wait(10)


if __name__ == "__main__":
    main(answers_equal_to_those_alone, the_same_with_a_quantized_cache, a_prefix_is_reused, clients_that_go_away,
         a_full_queue, others_stream_on_during_a_prefill, a_request_takes_too_long,
         a_worker_that_stands_still, an_orderly_end)
