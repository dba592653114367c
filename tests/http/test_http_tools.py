"""Tool calls that are asked for: tool_choice required and a named function, parallel_tool_calls, tools beside response_format,
in each of the three ways models write calls. The scripted model's logits are 0 for all tokens but one, so what is not
constrained comes out as noise: every call that is well-formed is so because it was made to be."""
import json
import tempfile

import scripted_model
from harness import Server, main
from test_http_answers import SCRIPTS, TEMPLATE, check_calls, streamed_calls

CHAT = "/v1/chat/completions"
WEATHER = {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}, "unit": {"type": "string", "enum": ["C", "F", "a b"]},
    "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}$"}, "name": {"type": "string", "minLength": 2, "maxLength": 3},
    "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}, "wind": {"type": "boolean"},
    "at": {"type": "array", "items": {"type": "number", "minimum": -90, "maximum": 90}, "minItems": 2, "maxItems": 2},
    "box": {"$ref": "#/$defs/box"}, "level": {"enum": [1, 2, None]}, "tag": {"const": "x<y"}},
    "required": ["city", "days", "unit", "code", "name", "when", "wind", "at", "box"],
    "$defs": {"box": {"type": "object", "properties": {"label": {"type": "string", "maxLength": 6}, "inner": {"anyOf": [
        {"$ref": "#/$defs/box"}, {"type": "null"}]}}, "required": ["label", "inner"], "additionalProperties": False}},
    "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER, "strict": True}},
         {"type": "function", "function": {"name": "get_time"}},
         {"type": "function", "function": {"name": "roll", "parameters": {"type": "object", "properties": {"sides": {"type": "integer", "minimum": 2}}}}}]
NAMES = {t["function"]["name"] for t in TOOLS}
servers, likely = {}, {}


def ask(style, script="plain", **more):
    body = {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"script": script, "enable_thinking": False}, "tools": TOOLS, "temperature": 1.0,
            "top_p": 1, "max_tokens": 1500, "logit_bias": likely[style], **more}
    return servers[style].ok(CHAT, body)["choices"][0]


def check(name, arguments):
    """By python3-jsonschema where it is installed, and by hand."""
    schema = next(t["function"].get("parameters") or {"type": "object", "maxProperties": 0} for t in TOOLS if t["function"]["name"] == name)
    try:
        import jsonschema
        jsonschema.Draft202012Validator(schema).validate(arguments)
    except ImportError:
        pass
    if name == "get_weather":
        assert isinstance(arguments["city"], str) and arguments["unit"] in ("C", "F", "a b") and 1 <= arguments["days"] <= 14
        assert len(arguments["name"]) in (2, 3) and isinstance(arguments["wind"], bool) and len(arguments["at"]) == 2, arguments
        assert set(arguments) <= set(WEATHER["properties"]) and set(WEATHER["required"]) <= set(arguments), arguments


def required():
    for style in servers:
        seen, several = set(), 0
        for seed in range(6):
            choice = ask(style, seed=seed, tool_choice="required")
            if choice["finish_reason"] == "length":
                continue
            calls = choice["message"]["tool_calls"]
            assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"], choice
            several += len(calls) > 1
            for call in calls:
                seen.add(call["function"]["name"])
                check(call["function"]["name"], json.loads(call["function"]["arguments"]))
        assert len(seen) >= 2 and several, (style, seen, several)


def a_named_function():
    for style in servers:
        done = 0
        for name in NAMES:
            for seed in range(3):
                choice = ask(style, seed=seed, tool_choice={"type": "function", "function": {"name": name}})
                if choice["finish_reason"] == "length":
                    continue
                done += 1
                call, = choice["message"]["tool_calls"]
                assert call["function"]["name"] == name and not choice["message"]["content"], choice
                check(name, json.loads(call["function"]["arguments"]))
        assert done >= 6, (style, done)


def streamed():
    for style in servers:
        for seed in range(4):
            more = {"seed": seed, "tool_choice": {"type": "function", "function": {"name": "roll"}}}
            whole = ask(style, **more)["message"]["tool_calls"]
            body = {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"script": "plain", "enable_thinking": False}, "tools": TOOLS, "temperature": 1.0,
                    "top_p": 1, "max_tokens": 1500, "logit_bias": likely[style], **more}
            events = list(servers[style].stream(CHAT, body))
            check_calls(streamed_calls(events[:-1]), [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in whole])
            assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


def only_one():
    for style in servers:
        for seed in range(8):
            choice = ask(style, seed=seed, tool_choice="required", parallel_tool_calls=False)
            if choice["finish_reason"] != "length":
                assert len(choice["message"]["tool_calls"]) == 1 and not choice["message"]["content"], choice


def beside_a_response_format():
    """An answer is either what the format says, or calls."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"n": {
        "type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}}}
    for style in servers:
        kinds = set()
        for seed in range(8):
            choice = ask(style, seed=seed, response_format=form, tools=TOOLS[1:], logit_bias={})
            if choice["finish_reason"] == "length":
                continue
            kinds.add(choice["finish_reason"])
            if choice["finish_reason"] == "tool_calls":
                assert not choice["message"]["content"], choice
                for call in choice["message"]["tool_calls"]:
                    check(call["function"]["name"], json.loads(call["function"]["arguments"]))
            else:
                assert 1 <= json.loads(choice["message"]["content"])["n"] <= 9 and "tool_calls" not in choice["message"], choice
            none = ask(style, seed=seed, response_format=form, tool_choice="none")
            assert set(json.loads(none["message"]["content"])) == {"n"}, none
        assert kinds == {"stop", "tool_calls"}, (style, kinds)
    forced = ask("xml", seed=1, response_format=form, tool_choice={"type": "function", "function": {"name": "roll"}})
    assert forced["finish_reason"] == "tool_calls", forced


def free_text_is_a_string_whatever_it_holds():
    """A string of a call's XML may hold "<" and brackets, in CDATA, and is read back as it was written."""
    tool = [{"type": "function", "function": {"name": "say", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}}]
    bias = {**likely["xml"], **{str(b): 6 for b in b"]><"}}
    plain = cdata = 0
    for seed in range(16):
        choice = ask("xml", seed=seed, tools=tool, logit_bias=bias, tool_choice="required", parallel_tool_calls=False)
        if choice["finish_reason"] == "length":
            continue
        text = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["text"]
        assert not ("<" in text and "]]>" in text), text
        cdata += "<" in text
        plain += "<" not in text
    assert cdata and plain, (cdata, plain)


def strict_functions_are_held_to_their_schema():
    """Without a forced call the answer is free, but what begins as a call of a strict set is a valid one. The script's own call
    lacks most of what the schema requires."""
    for style, script in [("xml", "xml"), ("hermes", "hermes")]:
        more = {"script": script, "temperature": 0, "logit_bias": {"10": -5, "32": -5}, "max_tokens": 800}
        loose = ask(style, tools=[{"type": "function", "function": {**TOOLS[0]["function"], "strict": False}}], **more)
        assert "unit" not in json.loads(loose["message"]["tool_calls"][0]["function"]["arguments"]), loose
        strict = ask(style, tools=TOOLS[:1], **more)
        assert "tool_calls" in strict["message"], strict
        call = strict["message"]["tool_calls"][0]
        check(call["function"]["name"], json.loads(call["function"]["arguments"]))
        plain = ask(style, "plain", temperature=0, logit_bias={})
        assert plain["message"]["content"] == "Hello, world!" and plain["finish_reason"] == "stop", plain
        # Text that only looks like the beginning of one, noise with many a "<" among it.
        for seed in range(6):
            noise = ask(style, "plain", seed=seed, temperature=2.0, max_tokens=150, logit_bias={str(b): 30 for b in b"<fun "})
            assert "tool_calls" not in noise["message"] and "<" in noise["message"]["content"], noise
    broken = ask("xml", "xmlbroken", temperature=0, logit_bias={}, max_tokens=800)
    assert broken["finish_reason"] in ("tool_calls", "length"), broken


def parameters_that_can_not_be_constrained():
    for parameters in [{"type": "object", "properties": {"n": {"type": "number", "multipleOf": 0.3}}, "required": ["n"]},
                       {"type": "object", "properties": {"n": {"type": "string", "pattern": "(?=x)"}}, "required": ["n"]}]:
        tool = {"name": "f", "parameters": parameters}
        for style in servers:
            base = {"messages": [{"role": "user", "content": "hi"}], "tool_choice": "required", "max_tokens": 400}
            message = servers[style].refused(CHAT, {**base, "tools": [{"type": "function", "function": {**tool, "strict": True}}]},
                                             code="unsupported")
            assert message.startswith("tools[0].function.parameters"), message
            # Not strict: the call is made all the same, its arguments are not held to the schema.
            choice = ask(style, seed=2, tools=[{"type": "function", "function": tool}], tool_choice="required", parallel_tool_calls=False,
                         logit_bias={**likely[style], str(ord("}")): 5, str(ord("<")): 5})
            if choice["finish_reason"] != "length":
                assert isinstance(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]), dict), choice


def marks_that_are_control_tokens():
    """Some tokenizers declare the marks of calls and reasoning as control tokens, which texts leave out otherwise."""
    scripts = {"xml": [b"<think>", b"Hm.", b"</think>", b"\n\n", b"<function", b' name="get_time"', b">", b"</function>"]}
    marks = [b"<think>", b"</think>", b"<function", b"</function>"]
    with tempfile.TemporaryDirectory() as folder:
        scripted_model.write(folder, scripts, TEMPLATE, control=marks)
        with Server(model=folder) as s:
            body = {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"script": "xml"}, "tools": TOOLS[1:], "max_tokens": 40}
            for more in [{}, {"tool_choice": "required", "logit_bias": {str(b): -9 for b in range(256)}}]:
                choice = s.ok(CHAT, {**body, **more})["choices"][0]
                assert choice["finish_reason"] == "tool_calls", choice
                check_calls(choice["message"]["tool_calls"], [("get_time", {})])
            assert s.ok(CHAT, body)["choices"][0]["message"]["reasoning_content"] == "Hm."
            entries = s.ok(CHAT, {**body, "logprobs": True})["choices"][0]["logprobs"]["content"]
            assert [e["token"] for e in entries][:2] == ["<think>", "Hm."], entries
            # In plain completions control tokens stay out of the text.
            assert s.complete("x<|xml|>", max_tokens=40)["choices"][0]["text"] == 'Hm.\n\n name="get_time">'


def a_call_after_reasoning():
    choice = ask("xml", "inside", seed=1, tool_choice={"type": "function", "function": {"name": "get_time"}},
                 chat_template_kwargs={"script": "inside", "opened": True}, temperature=0)
    assert choice["message"]["reasoning_content"] == "More thought", choice
    check_calls(choice["message"]["tool_calls"], [("get_time", {})])


def thinking_comes_first():
    """A constrained answer may begin with reasoning, unless thinking is off; what follows is constrained all the same."""
    forced = {"tool_choice": {"type": "function", "function": {"name": "get_time"}}, "temperature": 0, "logit_bias": {}}
    choice = ask("xml", "think", chat_template_kwargs={"script": "think"}, **forced)
    assert choice["message"]["reasoning_content"] == "First I think.", choice
    check_calls(choice["message"]["tool_calls"], [("get_time", {})])
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["a", "b"]}}}
    more = {"tools": None, "response_format": schema, "temperature": 0, "logit_bias": {}}
    choice = ask("xml", "think", chat_template_kwargs={"script": "think"}, **more)
    assert choice["message"]["reasoning_content"] == "First I think." and choice["message"]["content"] in ('"a"', '"b"'), choice
    off = ask("xml", "think", **more)
    assert "reasoning_content" not in off["message"] and off["message"]["content"] in ('"a"', '"b"'), off


def what_is_refused():
    base = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    s = servers["xml"]
    for choice, param in [("maybe", "tool_choice"), (5, "tool_choice"), ({"type": "function"}, "tool_choice.function.name"), ({}, "tool_choice.type"),
                          ({"type": "function", "function": {"name": 5}}, "tool_choice.function.name"),
                          ({"type": "function", "function": {"name": "none_of_them"}}, "tool_choice.function.name"),
                          ({"type": "allowed_tools"}, "tool_choice.type")]:
        s.refused(CHAT, {**base, "tools": TOOLS, "tool_choice": choice}, param=param)
    for choice in ["required", {"type": "function", "function": {"name": "roll"}}]:
        s.refused(CHAT, {**base, "tool_choice": choice}, param="tool_choice")
        s.refused(CHAT, {**base, "tools": [], "tool_choice": choice}, param="tool_choice")
    for value in ["yes", 1]:
        s.refused(CHAT, {**base, "tools": TOOLS, "parallel_tool_calls": value}, param="parallel_tool_calls")
    assert servers["xml"].ok(CHAT, {**base, "tool_choice": "none"}) and servers["xml"].ok(CHAT, {**base, "tool_choice": "auto"})


if __name__ == "__main__":
    templates = {"xml": TEMPLATE, "hermes": TEMPLATE.replace("<function name=", "<tool_call>"),
                 "llama3": TEMPLATE.replace("<function name=", "<|python_tag|>")}
    with tempfile.TemporaryDirectory() as folder:
        for style, template in templates.items():
            scripted_model.write("%s/%s" % (folder, style), SCRIPTS, template, {"inside": "<think>"})
        with Server(model=folder + "/xml") as xml, Server(model=folder + "/hermes") as hermes, Server(model=folder + "/llama3") as llama3:
            servers.update(xml=xml, hermes=hermes, llama3=llama3)
            for style in servers:  # what ends strings, and the answer, comes sooner than by chance
                end = servers[style].ok("/tokenize", {"content": "</s>"})["tokens"][0]
                likely[style] = {str(end): 1, **{str(b): 4 for b in (b"<" if style == "xml" else b'"')}}
            main(required, a_named_function, streamed, only_one, beside_a_response_format, free_text_is_a_string_whatever_it_holds,
                 strict_functions_are_held_to_their_schema, parameters_that_can_not_be_constrained, marks_that_are_control_tokens,
                 a_call_after_reasoning, thinking_comes_first, what_is_refused)
