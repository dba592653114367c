"""The server on a GPU, whose engine computes many tokens of several requests in one call: on a driver without a GPU
(tests/fakes), whose greatest logit after position i is token i + 1."""
import json
import os
import tempfile

from harness import PROGRAM, Server, main, together

COMPLETE = "/v1/completions"
CACHE = tempfile.TemporaryDirectory()  # its machine code is none
FAKES = os.path.join(os.path.dirname(os.path.abspath(PROGRAM)), "tests", "fakes")


def gpu(*args, **knobs):
    return Server(*args, env={"LD_LIBRARY_PATH": FAKES, "FAKE_CUDA_VOCAB": "4096", "MEGADECODE_DEVICE": "cuda", "XDG_CACHE_HOME": CACHE.name,
                              **{"FAKE_CUDA_" + k.upper(): str(v) for k, v in knobs.items()}})


def text_of(server, first, count):
    return server.ok("/detokenize", {"tokens": list(range(first, first + count))})["content"]


def answers_are_the_engines_tokens():
    with gpu() as server:
        bodies = []
        for i in range(12):
            prompt = "Once upon a time" + " there was" * i
            # Greedy, or a draw from one token: both are chosen by the engine; logprobs make the host choose.
            bodies.append({"prompt": prompt, "max_tokens": 3 + 5 * i, "temperature": i % 2, "top_k": 1, **({"logprobs": 1} if i % 5 == 4 else {})})
        expected = []
        for body in bodies:
            answer = server.ok(COMPLETE, body)
            n = answer["usage"]["prompt_tokens"]
            choice = answer["choices"][0]
            assert choice["text"] == text_of(server, n, body["max_tokens"]), (n, choice)
            assert answer["usage"]["completion_tokens"] == body["max_tokens"] and choice["finish_reason"] == "length"
            expected.append(choice)
        for _ in range(3):
            assert [a["choices"][0] for a in together([lambda body=body: server.ok(COMPLETE, body) for body in bodies])] == expected
        streams = together([lambda body=body: list(server.stream(COMPLETE, body)) for body in bodies])
        for events, choice in zip(streams, expected):
            assert "".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"]) == choice["text"]


def stops_and_cancels():
    with gpu() as server:
        whole = server.complete(max_tokens=60, temperature=0)["choices"][0]["text"]
        stop = whole[len(whole) // 2 :][:4]
        cut = server.complete(max_tokens=60, temperature=0, stop=stop)["choices"][0]
        assert cut["finish_reason"] == "stop" and cut["text"] == whole[: whole.index(stop)]
        # A client that goes away frees its place.
        for _ in range(20):
            events = server.stream(COMPLETE, {"prompt": "Once", "max_tokens": 4000, "temperature": 0})
            next(events)
            events.close()
        assert server.complete(max_tokens=60, temperature=0)["choices"][0]["text"] == whole


def what_the_host_chooses():
    """Scores of a prompt, and constrained answers: the host looks at every position's logits."""
    with gpu() as server:
        ids = [9, 1, 2, 9, 4]
        log = server.complete([ids, ids[:3]], max_tokens=0, echo=True, logprobs=1)["choices"][0]["logprobs"]
        names = [server.complete([i], max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]["tokens"][0] for i in range(1, 5)]
        assert [max(top, key=top.get) for top in log["top_logprobs"][1:]] == names, log
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "array", "items": {"enum": ["yes", "no"]}, "minItems": 3, "maxItems": 3}}}}
        for answer in together([lambda: server.ok("/v1/chat/completions", body)] * 6):
            value = json.loads(answer["choices"][0]["message"]["content"])
            assert len(value) == 3 and set(value) <= {"yes", "no"}, value


def a_wait_that_ran_out_ends_its_requests_only():
    with gpu(hang_at=9) as server:
        results = [server.post(COMPLETE, {"prompt": "Once", "max_tokens": 40, "temperature": 0}) for _ in range(6)]
        failed = [r for r in results if r.status != 200]
        assert len(failed) == 1 and failed[0].status >= 500 and b"waited over" in failed[0].data, [r.data for r in results]
        assert results[-1].status == 200


def a_lost_gpu_is_told_in_every_answer():
    with gpu(gone_at=9) as server:
        results = [server.post(COMPLETE, {"prompt": "Once", "max_tokens": 40, "temperature": 0}) for _ in range(6)]
        assert results[0].status == 200 and results[-1].status >= 500, [r.data for r in results]
        assert b"lost" in results[-1].data and b"CUDA error 719" in results[-1].data, results[-1].data
        assert server.get("/v1/models").status == 200


if __name__ == "__main__":
    if not os.path.isdir(FAKES):
        print("skipped: %s is missing" % FAKES)
        raise SystemExit(0)
    main(answers_are_the_engines_tokens, stops_and_cancels, what_the_host_chooses, a_wait_that_ran_out_ends_its_requests_only,
         a_lost_gpu_is_told_in_every_answer)
