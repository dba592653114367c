"""What becomes of a model's text: streams, reasoning, tool calls, stop strings, characters cut over tokens. The model is
scripted (scripted_model.py), so every expected value is written here by hand."""
import json
import tempfile

import scripted_model
from harness import Server, main

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
XML = [b'<function', b' name="', b'get_weather">', b'<param name="city">', b'<![CDATA[', b'Pra', b'gue & ', b'Brno]]>',
       b'</param><param', b' name="days">', b'3</param>', b'</func', b'tion>']
XML2 = [b'Let me look.\n', b'<function name="get_weather"><param name="city">Oslo</param></function>', b'\n<function name=',
        b'"get_time"></function>']
HERMES = [b'<tool_call>\n{"name": ', b'"get_weather", "arguments"', b': {"city": "Wien", ', b'"days": 2}}\n</tool_', b'call>']
SCRIPTS = {
    "plain": [b'Hello', b', ', b'world', b'!'],
    "xml": XML, "xmlbroken": [b'<function name="get_weather"><param name="ci', b'ty">Ro'], "xml2": XML2, "hermes": HERMES,
    "think": [b'<th', b'ink>\nFirst ', b'I think.', b'\n</thi', b'nk>\n\n', b'Then I ', b'answer.'],
    "inside": [b'More thought', b'</think>', b'\nDone.'],
    "unfinished": [b'<think>Never', b' ending'],
    # Public fault: a stop string over several tokens came out in part.
    "stop": [b'abcDE', b'FGH', b'IJxyz', b' end'], "stop2": [b'alpha be', b'ta', b' ga', b'mma', b' delta'],
    # Public fault: a character cut over tokens became U+FFFD.
    "cut": ["ď".encode()[:1], "ď".encode()[1:] + "á".encode() + b"b", "elsk".encode() + "é".encode()[:1], "é".encode()[1:] + b" ",
            "😊".encode()[:1], "😊".encode()[1:3], "😊".encode()[3:] + b"."],
    "torn": [b'ok ', "😊".encode()[:2] + b''],
    "nul": [b'a\0b', b'\x07"\\\n'],
    "json": [b'{"a"', b': 1}'],
}
TEMPLATE = ("{% for m in messages %}<|user|>{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }}:"
            "{{ c.function.arguments.city }}]{% endfor %}{% endfor %}"
            "{# a template that teaches <function name= and knows tools #}{% if tools %}tools{% endif %}"
            "<|assistant|>{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}"
            "{% if reasoning_effort is defined %}{{ reasoning_effort }}{% endif %}"
            "{% if opened %}<think>{% endif %}"
            + "".join("{%% if script == '%s' %%}<|%s|>{%% endif %%}" % (n, n) for n in SCRIPTS if n != "inside"))
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}}}}}, {"type": "function", "function": {"name": "get_time"}}]
server = hermes = None


def body(script, **more):
    kwargs = {"script": script, **more.pop("kwargs", {})}
    return {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": kwargs, **more}


def whole(script, at=None, **more):
    return (at or server).ok(CHAT, body(script, **more))["choices"][0]


def chunks(script, at=None, **more):
    events = list((at or server).stream(CHAT, body(script, **more)))
    assert events[-1] == "[DONE]"
    return events[:-1]


def joined(events, key):
    return "".join(e["choices"][0]["delta"].get(key) or "" for e in events if e["choices"])


def order_of_chunks():
    events = chunks("plain")
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}, events[0]
    assert len({e["id"] for e in events}) == 1 and events[0]["id"].startswith("chatcmpl-")
    assert all(e["object"] == "chat.completion.chunk" and e["created"] == events[0]["created"] for e in events)
    last = events[-1]["choices"][0]
    assert last["delta"] == {} and last["finish_reason"] == "stop"
    assert all(e["choices"][0]["finish_reason"] is None for e in events[:-1]) and "usage" not in events[-1]
    assert joined(events, "content") == "Hello, world!"
    counted = chunks("plain", stream_options={"include_usage": True})
    assert counted[-1]["choices"] == [] and all(e["usage"] is None for e in counted[:-1])
    usage = counted[-1]["usage"]
    assert usage["completion_tokens"] == 5 and usage["total_tokens"] == usage["prompt_tokens"] + 5, usage  # with </s>
    for timings in [counted[-1]["timings"], server.ok(CHAT, body("plain"))["timings"]]:
        assert set(timings) == {"first_token_ms", "decode_ms", "tokens_per_second"} and timings["first_token_ms"] >= 0, timings
        assert abs(timings["tokens_per_second"] * timings["decode_ms"] / 1000 - 4) < 1e-6, timings  # 5 tokens: 4 after the first
    assert server.ok(CHAT, body("plain", max_completion_tokens=1))["timings"]["tokens_per_second"] is None
    answer = server.ok(CHAT, body("plain"))
    assert answer["object"] == "chat.completion" and answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello, world!", "refusal": None}
    assert answer["choices"][0]["finish_reason"] == "stop" and answer["choices"][0]["logprobs"] is None
    cut = whole("plain", max_completion_tokens=2)
    assert cut["message"]["content"] == "Hello, " and cut["finish_reason"] == "length"


def completions():
    answer = server.ok(COMPLETE, {"prompt": "x<|plain|>", "max_tokens": 9})
    assert answer["choices"][0]["text"] == "Hello, world!" and answer["choices"][0]["finish_reason"] == "stop"
    assert answer["object"] == "text_completion" and answer["id"].startswith("cmpl-")
    events = list(server.stream(COMPLETE, {"prompt": "x<|plain|>", "max_tokens": 9, "stream_options": {"include_usage": True}}))
    assert events[-1] == "[DONE]" and events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 5
    assert "".join(e["choices"][0]["text"] for e in events[:-2]) == "Hello, world!"
    assert events[-3]["choices"][0]["finish_reason"] == "stop"
    offsets = server.ok(COMPLETE, {"prompt": "x<|cut|>", "max_tokens": 20, "logprobs": 1})["choices"][0]["logprobs"]
    assert offsets["text_offset"][0] == 0 and offsets["text_offset"] == sorted(offsets["text_offset"]), offsets
    default = server.ok(COMPLETE, {"prompt": "x<|xml|>"})  # OpenAI's default of 16 is above this script's length
    assert default["choices"][0]["text"] == b"".join(XML).decode()


def logprobs():
    answer = whole("cut", logprobs=True, top_logprobs=3)
    entries = answer["logprobs"]["content"]
    text = bytes(b for e in entries for b in e["bytes"]).decode()
    assert text == answer["message"]["content"] == "ďábelské 😊.", (text, answer["message"])
    for e in entries:
        assert len(e["top_logprobs"]) == 3 and e["top_logprobs"][0]["bytes"] == e["bytes"]
        assert e["logprob"] == e["top_logprobs"][0]["logprob"] > -1e-3
        # The others' logits are 0 against sqrt(768) = 27.7 (bf16: 27.75).
        assert abs(e["top_logprobs"][1]["logprob"] + 27.75) < 0.2, e
    events = chunks("cut", logprobs=True, top_logprobs=3)
    streamed = [x for e in events for x in (e["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert streamed == entries


def characters_over_tokens():
    assert whole("cut")["message"]["content"] == "ďábelské 😊."
    events = chunks("cut")  # every event is valid UTF-8 by itself: the reader would raise
    assert joined(events, "content") == "ďábelské 😊."
    assert "\ufffd" not in "".join(e["choices"][0]["delta"].get("content", "") for e in events)
    torn = whole("torn")["message"]["content"]  # what never becomes a character is said once, at the end
    assert torn == "ok \ufffd", repr(torn)
    assert joined(chunks("torn"), "content") == torn
    assert whole("nul")["message"]["content"] == 'a\0b\x07"\\\n' == joined(chunks("nul"), "content")


def stop_strings_over_tokens():
    for script, stop, expected in [("stop", "DEFGHIJ", "abc"), ("stop2", "beta gamma", "alpha "), ("stop", "end", "abcDEFGHIJxyz "),
                                   ("stop", "FGHX", "abcDEFGHIJxyz end"), ("stop", "a", "")]:
        choice = whole(script, stop=stop)
        assert choice["message"]["content"] == expected and choice["finish_reason"] == "stop", (stop, choice)
        events = chunks(script, stop=[stop, "nothing"])
        assert joined(events, "content") == expected and events[-1]["choices"][0]["finish_reason"] == "stop"
    entries = whole("stop", stop="DEFGHIJ", logprobs=True)["logprobs"]["content"]
    assert bytes(entries[0]["bytes"]) == b"abcDE" and len(entries) == 1, entries


def reasoning():
    message = whole("think")["message"]
    assert message["reasoning_content"] == "First I think." and message["content"] == "Then I answer.", message
    events = chunks("think")
    assert joined(events, "reasoning_content") == "First I think." and joined(events, "content") == "Then I answer."
    message = whole("inside", kwargs={"opened": True})["message"]
    assert message["reasoning_content"] == "More thought" and message["content"] == "Done.", message
    message = whole("unfinished")["message"]
    assert message["reasoning_content"] == "Never ending" and message["content"] == "", message
    assert "reasoning_content" not in whole("plain")["message"]


def template_variables():
    def prompt(**more):
        return server.ok("/apply-template", body("plain", **more))["prompt"]
    assert prompt(enable_thinking=True).endswith("<|assistant|>True<|plain|>")
    assert prompt(enable_thinking=False).endswith("<|assistant|>False<|plain|>")
    assert prompt(reasoning_effort="high").endswith("<|assistant|>Truehigh<|plain|>")
    assert prompt(reasoning_effort="none").endswith("<|assistant|>Falsenone<|plain|>")
    assert prompt().endswith("<|assistant|><|plain|>")
    assert prompt(kwargs={"enable_thinking": False}, enable_thinking=True).endswith("<|assistant|>False<|plain|>")


def check_calls(calls, expected):
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == expected, calls
    assert all(c["type"] == "function" and c["id"] for c in calls) and len({c["id"] for c in calls}) == len(calls)


def streamed_calls(events):
    """Puts the deltas together as OpenAI's clients do."""
    calls = []
    for e in events:
        for delta in e["choices"][0]["delta"].get("tool_calls", []):
            if delta["index"] == len(calls):
                assert delta["function"]["name"] and delta["id"] and delta["type"] == "function", delta
                calls.append(json.loads(json.dumps(delta)))
            else:
                assert set(delta) == {"index", "function"} and set(delta["function"]) == {"arguments"}, delta
                calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return calls


def tool_calls():
    """Public fault: MiniCPM5's XML calls came out as content."""
    weather = ("get_weather", {"city": "Prague & Brno", "days": 3})
    choice = whole("xml", tools=TOOLS)
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
    check_calls(choice["message"]["tool_calls"], [weather])
    events = chunks("xml", tools=TOOLS, tool_choice="auto")
    check_calls(streamed_calls(events), [weather])
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls" and joined(events, "content") == ""
    both = [("get_weather", {"city": "Oslo"}), ("get_time", {})]
    choice = whole("xml2", tools=TOOLS)
    check_calls(choice["message"]["tool_calls"], both)
    assert choice["message"]["content"] == "Let me look.", choice["message"]
    events = chunks("xml2", tools=TOOLS)
    check_calls(streamed_calls(events), both)
    assert joined(events, "content") == "Let me look."
    check_calls(whole("xml2", tools=TOOLS, parallel_tool_calls=False)["message"]["tool_calls"], both[:1])
    check_calls(streamed_calls(chunks("xml2", tools=TOOLS, parallel_tool_calls=False)), both[:1])
    # Without tools, or where they may not be called, the text stays text.
    for more in [{}, {"tools": TOOLS, "tool_choice": "none"}]:
        choice = whole("xml", **more)
        assert choice["message"]["content"] == b"".join(XML).decode() and choice["finish_reason"] == "stop"
    broken = whole("xmlbroken", tools=TOOLS)  # cut off by the end: no call, and no text is lost
    assert "tool_calls" not in broken["message"] and broken["finish_reason"] == "stop", broken
    assert broken["message"]["content"] == '<function name="get_weather"><param name="city">Ro'
    unknown = whole("xml", tools=TOOLS[1:])
    assert "tool_calls" not in unknown["message"] and "get_weather" in unknown["message"]["content"]


def hermes_calls():
    expected = [("get_weather", {"city": "Wien", "days": 2})]
    choice = whole("hermes", at=hermes, tools=TOOLS)
    check_calls(choice["message"]["tool_calls"], expected)
    assert choice["finish_reason"] == "tool_calls"
    check_calls(streamed_calls(chunks("hermes", at=hermes, tools=TOOLS)), expected)


def the_tool_role():
    """Arguments come as a JSON string and the template walks them as an object."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Brno"}'}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]
    prompt = server.ok("/apply-template", {"messages": messages, "tools": TOOLS})["prompt"]
    assert prompt == "<|user|>hi<|user|>[get_weather:Brno]<|user|>sunnytools<|assistant|>", prompt
    for arguments in ["{", "[1]", 5]:
        call["function"]["arguments"] = arguments
        server.refused(CHAT, {"messages": messages, "tools": TOOLS})


def what_is_refused():
    server.refused(CHAT, body("plain", tools=TOOLS, tool_choice="maybe"), param="tool_choice")
    server.refused(CHAT, body("plain", tools=[TOOLS[0], TOOLS[0]]))
    with Server() as s:  # a template without tools
        s.refused(CHAT, {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS}, param="tools", code="unsupported")


def a_schema_after_reasoning():
    """The constraint holds from the closing mark on: the script's "\\nDone." is not JSON and can't come."""
    choice = whole("inside", kwargs={"opened": True}, max_tokens=40, response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"enum": [12, 345]}}})
    assert choice["message"]["reasoning_content"] == "More thought", choice
    assert choice["message"]["content"] in ("12", "345") and choice["finish_reason"] == "stop", choice


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        scripted_model.write(folder + "/xml", SCRIPTS, TEMPLATE, {"inside": "<think>"})
        scripted_model.write(folder + "/hermes", SCRIPTS, TEMPLATE.replace("<function name=", "<tool_call>"), {"inside": "<think>"})
        with Server(model=folder + "/xml") as server, Server(model=folder + "/hermes") as hermes:
            main(order_of_chunks, completions, logprobs, characters_over_tokens, stop_strings_over_tokens, reasoning,
                 template_variables, tool_calls, hermes_calls, the_tool_role, what_is_refused, a_schema_after_reasoning)
