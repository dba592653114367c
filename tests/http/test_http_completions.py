"""/v1/completions beyond one prompt and its continuation: several prompts, echoed prompts with log-probabilities, answers
of no tokens. What the scripted model gives is known by hand: a token's successor has the logit 27.625, all others 0
(1 / sqrt(1 / 768 + 1e-5) = 27.607, of which bf16 makes 27.625)."""
import json
import math
import tempfile

import scripted_model
from harness import Server, main, together, wait_until
from test_http_answers import SCRIPTS, TEMPLATE

COMPLETE = "/v1/completions"
ENDLESS = {"1": -100, "3": -100}
SURE = -math.log1p(767 * math.exp(-27.625))  # of the successor: 1 / (1 + 767 exp(-27.625))
OTHER = -27.625 + SURE
server = scripted = vocab = None


def near(a, b):
    return abs(a - b) < 1e-9 + 1e-6 * abs(b)


def several_prompts():
    texts = ["Once upon a time", "The fox", "In the dark wood there"]
    alone = [server.complete(t, max_tokens=12, temperature=0, logprobs=2) for t in texts]
    answer = server.complete(texts, max_tokens=12, temperature=0, logprobs=2)
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    for choice, one in zip(answer["choices"], alone):
        assert {**choice, "index": 0} == one["choices"][0], (choice, one)
    for field in ["prompt_tokens", "completion_tokens", "total_tokens"]:
        assert answer["usage"][field] == sum(one["usage"][field] for one in alone), (field, answer["usage"])
    ids = [server.ok("/tokenize", {"content": t, "add_special": True})["tokens"] for t in texts]
    assert server.complete(ids, max_tokens=12, temperature=0, logprobs=2)["choices"] == answer["choices"]
    mixed = server.complete([texts[0], ids[1]], max_tokens=12, temperature=0, logprobs=2)
    assert mixed["choices"] == answer["choices"][:2]
    assert "timings" not in answer and all(one["timings"]["first_token_ms"] >= 0 for one in alone)
    # Without a seed equal prompts differ; with one they do not.
    drawn = server.complete([texts[0]] * 4, max_tokens=24, temperature=1.5)["choices"]
    assert len({c["text"] for c in drawn}) > 1, drawn
    seeded = server.complete([texts[0]] * 4, max_tokens=24, temperature=1.5, seed=3)["choices"]
    assert len({c["text"] for c in seeded}) == 1, seeded


def streamed_prompts():
    texts, most = ["Once upon a time", "The fox", "In the dark wood there"], 400  # long enough that they are read while they are made
    whole = server.complete(texts, max_tokens=most, temperature=0, logit_bias=ENDLESS)["choices"]
    events = list(server.stream(COMPLETE, {"prompt": texts, "max_tokens": most, "temperature": 0, "logit_bias": ENDLESS,
                                           "stream_options": {"include_usage": True}}))
    assert events[-1] == "[DONE]" and events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 3 * most
    text, ended, order = [""] * 3, [None] * 3, []
    for event in events[:-2]:
        choice, = event["choices"]
        i = choice["index"]
        assert ended[i] is None, "nothing comes after a choice's end"
        text[i] += choice["text"]
        ended[i] = choice["finish_reason"]
        order.append(i)
    assert text == [c["text"] for c in whole] and ended == ["length"] * 3
    # They decode together, so no one's events wait for the end of another's.
    assert order != sorted(order), order


def more_prompts_than_places():
    with Server("--parallel", "2", "--queue", "20") as small:
        prompts = ["Once %d" % i for i in range(22)]
        answer = small.complete(prompts, max_tokens=4, temperature=0)
        for i in [0, 1, 2, 21]:
            assert answer["choices"][i]["text"] == small.complete(prompts[i], max_tokens=4, temperature=0)["choices"][0]["text"], i
        message = small.refused(COMPLETE, {"prompt": prompts + ["x"], "max_tokens": 1}, param="prompt")
        assert "23" in message and "22" in message, message
        # All of a request's prompts get places, or none does.
        endless = {"max_tokens": 4000, "logit_bias": ENDLESS}
        busy = small.open_post(COMPLETE, {"prompt": prompts[:14], **endless})
        wait_until(lambda: small.metric("requests_running") == 2 and small.metric("requests_queued") <= 12, 5, "two run")
        full = small.post(COMPLETE, {"prompt": prompts, "max_tokens": 1})
        assert full.status == 429 and small.metric("requests_queued") <= 12, (full.status, full.data)
        # A client that goes away takes all of its prompts along.
        many = small.open_post(COMPLETE, {"prompt": prompts[:8], **endless})
        wait_until(lambda: small.metric("requests_queued") > 12, 5, "they wait")
        many.close()
        wait_until(lambda: small.metric("requests_queued") <= 12, 1.5, "all are gone")
        busy.close()
        wait_until(lambda: small.metric("requests_queued") + small.metric("requests_running") == 0, 1.5, "all are gone")


def one_that_fails_ends_all():
    with Server("--timeout", "1", "--parallel", "1") as slow:
        body = {"prompt": ["Once %d" % i for i in range(12)], "max_tokens": 4000, "logit_bias": ENDLESS, "temperature": 0}
        whole = slow.post(COMPLETE, body)
        if whole.status == 200:
            print("        a machine that computes 48000 tokens in a second: nothing fails")
            return
        error = json.loads(whole.data)["error"]
        assert error["code"] == "timeout" or whole.status == 503, (whole.status, whole.data)
        events = list(slow.stream(COMPLETE, body))
        assert "error" in events[-1] and sum("error" in e for e in events) == 1, events[-1]
        wait_until(lambda: slow.metric("requests_running") + slow.metric("requests_queued") == 0, 3, "all places are free")
        assert slow.complete(max_tokens=1)["usage"]["completion_tokens"] == 1


def one_prompt_too_long():
    message = server.refused(COMPLETE, {"prompt": ["short", "word " * 6000], "max_tokens": 1}, code="context_length_exceeded")
    assert "4096" in message, message


def echoed_scripts():
    hello, comma, world = vocab["Hello"], vocab[",\u0120"], vocab["world"]
    plain = vocab["<|plain|>"]
    prompt = [plain, hello, comma, hello, world]  # the second "Hello" is no successor of ", "
    answer = scripted.complete(prompt, max_tokens=1, temperature=0, echo=True, logprobs=1)["choices"][0]
    assert answer["text"] == "Hello, Helloworld!", answer["text"]
    log = answer["logprobs"]
    assert log["tokens"] == ["<|plain|>", "Hello", ", ", "Hello", "world", "!"], log["tokens"]
    assert log["text_offset"] == [0, 0, 5, 7, 12, 17], log["text_offset"]
    found = log["token_logprobs"]
    expected = [None, SURE, SURE, OTHER, OTHER, SURE]
    assert found[0] is None and all(near(a, b) for a, b in zip(found[1:], expected[1:])), found
    assert log["top_logprobs"][0] is None
    for i, names in enumerate([{"Hello"}, {", "}, {"world", "Hello"}, {", ", "world"}, {"!"}], 1):
        assert set(log["top_logprobs"][i]) == names, (i, log["top_logprobs"][i])
    # The same without an answer, whole and streamed, and without log-probabilities.
    none = scripted.complete(prompt, max_tokens=0, echo=True, logprobs=1)
    choice = none["choices"][0]
    assert choice["text"] == "Hello, Helloworld" and choice["finish_reason"] == "length"
    assert choice["logprobs"] == {k: v[:-1] for k, v in log.items()}, choice
    assert none["usage"]["completion_tokens"] == 0 and none["usage"]["prompt_tokens"] == 5
    events = list(scripted.stream(COMPLETE, {"prompt": prompt, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}))
    assert "".join(e["choices"][0]["text"] for e in events[:-1]) == "Hello, Helloworld!"
    for key, value in log.items():
        assert [x for e in events[:-1] for x in (e["choices"][0]["logprobs"] or {key: []})[key]] == value, key
    plainly = scripted.complete(prompt, max_tokens=0, echo=True)["choices"][0]
    assert plainly["text"] == "Hello, Helloworld" and plainly["logprobs"] is None
    silent = scripted.complete(prompt, max_tokens=0)["choices"][0]
    assert silent["text"] == "" and silent["finish_reason"] == "length"
    # A character cut over the prompt's tokens counts once.
    cut = [vocab["<|cut|>"]] + [vocab["".join(scripted_model.byte_alphabet()[b] for b in piece)] for piece in SCRIPTS["cut"][:5]]
    log = scripted.complete(cut, max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]
    assert log["text_offset"] == [0, 0, 1, 3, 8, 9], log["text_offset"]  # of "\u010f" "\u00e1b" "elsk" "\u00e9" " "


def echoed_prompts_score_as_answers_do():
    """What a token's log-probability was when it was chosen, it is when it is read again: bit for bit, also where the
    prompt's cache is there already, with other requests beside it, and with a quantized cache."""
    for kv in ["none", "8"]:
        with Server("--kv", kv) as s:
            prompt = s.ok("/tokenize", {"content": "Once upon a time", "add_special": True})["tokens"]
            body = {"prompt": prompt, "max_tokens": 40, "temperature": 0.9, "seed": 4, "logprobs": 3, "logit_bias": ENDLESS}
            chosen = s.ok(COMPLETE, body)["choices"][0]["logprobs"]
            text = "".join(chosen["tokens"])
            ids = s.ok("/tokenize", {"content": "Once upon a time" + text, "add_special": True})["tokens"]
            again = {"prompt": [ids] * 3, "max_tokens": 0, "echo": True, "logprobs": 3}
            first, beside = together([lambda: s.ok(COMPLETE, again), lambda: s.ok(COMPLETE, {**body, "seed": 5})])
            assert beside["choices"][0]["logprobs"]["tokens"]
            for choice in first["choices"]:
                log = choice["logprobs"]
                assert choice["text"] == "Once upon a time" + text
                assert len(log["tokens"]) == len(ids) == first["usage"]["prompt_tokens"] / 3
                if log["tokens"][len(prompt):] == chosen["tokens"]:  # the text is cut into the same tokens again
                    assert log["token_logprobs"][len(prompt):] == chosen["token_logprobs"]
                    assert log["top_logprobs"][len(prompt):] == chosen["top_logprobs"]
                else:
                    raise AssertionError("another seed is needed: %r" % log["tokens"])
            assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def as_evaluation_harnesses_ask():
    """lm-evaluation-harness' local-completions: lists of token ids, echo, logprobs 1, max_tokens 1; it sums the
    log-probabilities of the continuation and looks whether each is the greatest of its top_logprobs."""
    context, good = [vocab["<|plain|>"], vocab["Hello"]], [vocab[",\u0120"], vocab["world"]]
    bad = [vocab["world"], vocab["!"]]
    body = {"model": "xml", "prompt": [context + good, context + bad], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
            "echo": True}
    for choice, expected, greedy in zip(scripted.ok(COMPLETE, body)["choices"], [2 * SURE, OTHER + SURE], [True, False]):
        logprobs = choice["logprobs"]["token_logprobs"][len(context):-1]
        tops = choice["logprobs"]["top_logprobs"][len(context):-1]
        assert near(sum(logprobs), expected), (logprobs, expected)
        assert all(p == max(t.values()) for p, t in zip(logprobs, tops)) == greedy


def the_end_has_an_entry():
    """The token that ends an answer is listed, so that there is one entry a token whatever came."""
    choice = scripted.complete([vocab["world"]], max_tokens=5, temperature=0, echo=True, logprobs=1)["choices"][0]
    assert choice["logprobs"]["tokens"] == ["world", "!", "</s>"] and choice["finish_reason"] == "stop", choice
    assert choice["logprobs"]["text_offset"] == [0, 5, 6], choice
    assert choice["text"] == "world!"


def too_many_scores():
    """What a request may make the server hold in memory is bounded."""
    long = [[9] * 4000] * 8
    message = server.refused(COMPLETE, {"prompt": long, "max_tokens": 0, "echo": True, "logprobs": 20}, param="prompt")
    assert "32000" in message and "24966" in message, message  # 2^19 / 21
    assert len(server.complete([long[0][:200]] * 8, max_tokens=0, echo=True, logprobs=20)["choices"]) == 8


def refused_by_name():
    for field, value in [("suffix", "end"), ("best_of", 2), ("n", 2), ("response_format", {"type": "json_object"})]:
        server.refused(COMPLETE, {"prompt": "x", field: value}, param=field, code="unsupported")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        scripted_model.write(folder + "/xml", SCRIPTS, TEMPLATE, {"inside": "<think>"})
        with open(folder + "/xml/tokenizer.json", encoding="utf-8") as file:
            tokenizer = json.load(file)
        vocab = {**tokenizer["model"]["vocab"], **{t["content"]: t["id"] for t in tokenizer["added_tokens"]}}
        with Server() as server, Server(model=folder + "/xml") as scripted:
            main(several_prompts, streamed_prompts, more_prompts_than_places, one_that_fails_ends_all, one_prompt_too_long, echoed_scripts,
                 echoed_prompts_score_as_answers_do, as_evaluation_harnesses_ask,
                 the_end_has_an_entry, too_many_scores, refused_by_name)
