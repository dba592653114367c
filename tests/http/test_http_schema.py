"""response_format: every answer satisfies its schema (checked by two validators, where they are installed), or the request is
refused."""
import datetime
import email.utils
import ipaddress
import json
import os
import re
import subprocess
import uuid

import clients
from harness import Server, main

CHAT = "/v1/chat/completions"
server = None


def ask(schema, seed=1, temperature=1.0, max_tokens=300, **more):
    body = {"messages": [{"role": "user", "content": "Tell me of the fox"}], "seed": seed, "temperature": temperature,
            "top_p": 1, "max_tokens": max_tokens, **more}
    body["response_format"] = ({"type": "json_object"} if schema is None else
                               {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}})
    return body


SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": {"type": "number"}}},
    {"type": "object", "properties": {"a": {"const": "x"}, "b": {"enum": ["p", "q", 3, None, True]}, "c": {"enum": [1.5, -2]},
                                      "d": {"type": "string", "enum": ["one", 2]}}, "required": ["b", "d"]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"enum": ["r", "g", "b"]}, "minItems": 3, "maxItems": 3},
    {"type": "string", "minLength": 5, "maxLength": 12}, {"type": "string", "minLength": 3, "maxLength": 3},
    {"type": ["integer", "null"]}, {"type": "boolean"}, {"enum": ["yes", "no", "yes or no"]}, {"const": {"a": [1, "é\n\"", None]}},
    {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"],
                                     "additionalProperties": False}]},
    {"oneOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}]},
    {"$defs": {"p": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}},
     "type": "object", "properties": {"from": {"$ref": "#/$defs/p"}, "to": {"$ref": "#/$defs/p"}}, "required": ["from", "to"]},
    {"definitions": {"c": {"enum": ["red", "blue"]}}, "type": "array", "items": {"$ref": "#/definitions/c"}, "maxItems": 3},
    {"type": "object", "additionalProperties": {"type": "integer"}, "description": "a map", "title": "Map", "default": {}},
    {"type": "object", "required": ["z"], "properties": {"a": {"type": "string", "maxLength": 4}}},
    {"allOf": [{"type": "integer"}], "title": "one"}, {"minItems": 1, "items": {"type": "null"}, "maxItems": 2},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "object", "properties": {
        "id": {"type": "integer"}, "on": {"type": "boolean"}}, "required": ["id", "on"]}, "maxItems": 2}}, "required": ["list"]},
    {"type": "string", "pattern": "^[a-z]{2,5}-[0-9]{3}$"}, {"type": "string", "pattern": "^(red|green|blue)( (red|green|blue)){0,2}$"},
    {"type": "string", "pattern": "^[^\\s\"]+$", "minLength": 3, "maxLength": 9},
    {"type": "object", "properties": {"sku": {"type": "string", "pattern": "^[A-Z]{3}\\d{4}$"}, "note": {"type": "string", "maxLength": 9}},
     "required": ["sku"], "additionalProperties": False},
    {"type": "integer", "minimum": 3, "maximum": 17}, {"type": "integer", "exclusiveMinimum": -40, "maximum": -3}, {"type": "integer", "minimum": 0},
    {"type": "number", "minimum": 0, "maximum": 1}, {"type": "number", "exclusiveMinimum": -0.5, "exclusiveMaximum": 2.25},
    {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 130}, "score": {"type": "number", "minimum": -1, "maximum": 1},
                                      "rating": {"type": ["integer", "null"], "minimum": 1, "maximum": 5}}, "required": ["age", "score", "rating"]},
    {"type": "integer", "multipleOf": 7, "minimum": 0}, {"type": "object", "properties": {"percent": {"type": "integer", "multipleOf": 5,
        "minimum": 0, "maximum": 100}}, "required": ["percent"]},
    {"type": "array", "prefixItems": [{"type": "integer", "minimum": 1, "maximum": 9}, {"enum": ["a", "b"]}], "minItems": 2, "maxItems": 2},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["kind", "lives"], "additionalProperties": False}, {"$ref": "#/$defs/dog"}],
     "$defs": {"dog": {"type": "object", "properties": {"kind": {"enum": ["dog", "wolf"]}, "tame": {"type": "boolean"}},
                       "required": ["kind", "tame"], "additionalProperties": False}}},
    # Recursive ones, as OpenAI's documentation has them: a list, and a tree by "#".
    {"type": "object", "properties": {"head": {"$ref": "#/$defs/node"}}, "required": ["head"], "additionalProperties": False, "$defs": {"node": {
        "type": "object", "properties": {"value": {"type": "integer", "minimum": 0, "maximum": 99}, "next": {"anyOf": [
            {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["value", "next"], "additionalProperties": False}}},
    {"type": "object", "properties": {"type": {"enum": ["div", "button"]}, "label": {"type": "string", "maxLength": 8},
                                      "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}},
     "required": ["type", "label", "children"], "additionalProperties": False},
    # As pydantic writes an optional member, and a list of models.
    {"$defs": {"Step": {"properties": {"explanation": {"title": "Explanation", "type": "string", "maxLength": 20}, "output": {"anyOf": [
        {"type": "string", "maxLength": 10}, {"type": "null"}], "default": None, "title": "Output"}}, "required": ["explanation"], "title": "Step",
        "type": "object"}}, "properties": {"steps": {"items": {"$ref": "#/$defs/Step"}, "maxItems": 2, "title": "Steps", "type": "array"},
                                           "final": {"allOf": [{"$ref": "#/$defs/Step"}], "description": "the last"}},
     "required": ["steps", "final"], "title": "Reasoning", "type": "object"},
    {"type": "array", "items": {"type": "object", "properties": {"a<b": {"type": "boolean"}, "q\"/\\": {"const": "<\"\\>"}}, "required": ["a<b", "q\"/\\"]},
     "minItems": 1, "maxItems": 2, "uniqueItems": False},
]


def a_date(text):
    assert str(datetime.date.fromisoformat(text)) == text


def a_duration(text):
    date, _, clock = text[1:].partition("T")
    assert text[0] == "P" and (date or clock) and not text.endswith("T"), text
    for part, units in [(date, "YMWD"), (clock, "HMS")]:
        found = re.findall(r"(\d+)(\D)", part)
        assert "".join(n + u for n, u in found) == part, text
        assert [units.index(u) for _, u in found] == sorted({units.index(u) for _, u in found}), text


def an_address(text):
    name, at, host = text.partition("@")
    assert at and name and "." in host and email.utils.parseaddr(text)[1] == text, text
    host.encode("idna")


FORMATS = {  # what Python's own library says of each text
    "date": a_date, "time": lambda t: datetime.time.fromisoformat(t).replace(tzinfo=None), "uuid": lambda t: uuid.UUID(t),
    "date-time": lambda t: (a_date(t[:10]), datetime.datetime.fromisoformat(t)), "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address,
    "duration": a_duration, "email": an_address, "hostname": lambda t: t.encode("idna")}


def answers_satisfy_their_schemas():
    cases, whole = [], 0
    for schema in SCHEMAS:
        for seed in range(3):
            choice = server.ok(CHAT, ask(schema, seed, temperature=[0, 1, 1.8][seed]))["choices"][0]
            text = choice["message"]["content"]
            if choice["finish_reason"] == "length":
                continue  # an answer that was cut is no sentence
            whole += 1
            json.loads(text)
            cases.append({"schema": schema, "text": text})
    assert whole >= 0.85 * 3 * len(SCHEMAS), "%d answers came to their end" % whole
    assert len({c["text"] for c in cases}) > 0.5 * len(cases), "the model still chooses"
    validate(cases)


def formats():
    for name, check in FORMATS.items():
        texts = set()
        for seed in range(6):
            choice = server.ok(CHAT, ask({"type": "string", "format": name}, seed, 1.5))["choices"][0]
            if choice["finish_reason"] == "stop":
                text = json.loads(choice["message"]["content"])
                texts.add(text)
                check(text)
        assert len(texts) > 3, (name, texts)


BAD = [(0, '{"name": "x"}'), (3, "[1]"), (21, '"ab-12"'), (25, "18"), (28, "1.5")]  # broken on purpose: each validator has to see it


def validate(cases):
    """Two validators that know nothing of this project: Python's jsonschema and ajv, each where it is installed."""
    every = [(c["schema"], c["text"]) for c in cases] + [(SCHEMAS[i], text) for i, text in BAD]
    expected = [True] * len(cases) + [False] * len(BAD)
    try:
        import jsonschema
        for (schema, text), good in zip(every, expected):
            assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)) == good, (schema, text)
        print("        %d answers valid for python3-jsonschema" % len(cases))
    except ImportError:
        print("SKIPPED: python3-jsonschema is not installed; it did not check the answers")
    folder = clients.install()
    if not folder:
        return
    result = subprocess.run(["node", os.path.abspath("tests/http/clients/validate.mjs")], cwd=folder, text=True,
                            input=json.dumps([{"schema": schema, "text": text} for schema, text in every]), capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr
    for case, verdict, good in zip(every, json.loads(result.stdout), expected):
        assert verdict == good, case
    print("        %d answers valid for ajv" % len(cases))


def any_object():
    whole = 0
    for seed in range(8):
        choice = server.ok(CHAT, ask(None, seed, temperature=0.7))["choices"][0]
        if choice["finish_reason"] == "stop":
            whole += 1
            assert isinstance(json.loads(choice["message"]["content"]), dict)
        assert choice["message"]["content"].startswith("{")
    # White space can't go on for ever, and a stop of the schema's own ends the answer.
    assert server.chat("x", max_tokens=5, response_format={"type": "text"})["usage"]["completion_tokens"] == 5


def streamed_and_together():
    body = ask(SCHEMAS[0], 3, 0.8)
    text = server.ok(CHAT, body)["choices"][0]["message"]["content"]
    events = list(server.stream(CHAT, body))
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == text


def schemas_that_are_refused():  # row S5: never an answer that is not constrained
    deep = {"type": "integer"}
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    unsupported = [
        {"type": "string", "pattern": "(?=a)b"}, {"type": "string", "pattern": "^(a)\\1$"}, {"type": "string", "pattern": "(" * 60000},
        {"type": "string", "format": "uri"}, {"type": "string", "maxLength": 2000000000}, {"type": "string", "pattern": "^(a|bc)*$", "maxLength": 3},
        {"type": "string", "format": "date", "pattern": "^2"}, {"type": "integer", "minimum": 1e20},
        {"type": "number", "multipleOf": 0.1}, {"type": "array", "uniqueItems": True}, {"type": "array", "prefixItems": [{}]},
        {"type": "object", "patternProperties": {"a": {}}}, {"type": "object", "minProperties": 1}, {"not": {}}, {"if": {}},
        {"$ref": "http://example.com/x"}, {"$ref": "other.json#/a"}, {"$ref": "#name"},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"allOf": [{"type": "integer"}, {"type": "number"}]},
        {"oneOf": [{"type": "object", "properties": {"k": {"const": 1}}}, {"type": "object", "properties": {"k": {"const": 2}}}]},
        {"anyOf": [{"type": "integer"}], "type": "integer"}, {"enum": list(range(2000))}, deep, {"unheardOf": 1},
        {"type": "object", "properties": {"x": {"type": "string", "contentEncoding": "base64"}}}]
    wrong = [{"type": "text"}, {"type": 5}, {"type": []}, {"type": ["string", "x"]}, {"enum": []}, {"enum": 3}, {"anyOf": []},
             {"properties": []}, {"required": "a"}, {"required": [1]}, {"minItems": -1}, {"minItems": 1.5}, {"minItems": 3, "maxItems": 2},
             {"items": 5}, {"items": False, "minItems": 1}, 5, "x", [], False, {"additionalProperties": 3}, {"$ref": 5}, {"$ref": "#/$defs/none"},
             {"type": "object", "required": ["q"], "additionalProperties": False}, {"const": 1, "type": "string"},
             {"enum": [1], "type": "string"}, {"properties": {"a": 5}}, {"type": "string", "pattern": "^+[a-z]$"},
             {"type": "string", "pattern": "[a"}, {"type": "string", "pattern": 5}, {"type": "integer", "minimum": "1"}, {"type": "string", "format": 5},
             {"type": "integer", "minimum": 2, "maximum": 1}, {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
             {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {"$ref": "#/properties/a"},
             {"type": "number", "exclusiveMinimum": True}]
    for schema in unsupported + wrong:
        for stream in [False, True]:
            message = server.refused(CHAT, ask(schema, stream=stream))
            assert "response_format" in message, message
    server.refused(CHAT, ask({"type": "string", "pattern": "(?=a)"}), code="unsupported", param="response_format.json_schema.schema")
    for form in [{"type": "json_schema", "json_schema": {"schema": {}}}, {"type": "json_schema", "json_schema": {"name": "x"}},
                 {"type": "json_object", "schema": {"type": "string", "pattern": "\\b"}}, {"type": "grammar"}]:
        server.refused(CHAT, {**ask(None), "response_format": form})


def schemas_that_cost_much():
    """Each would take minutes or all memory where work is not bounded; here it is answered or refused, and others go on."""
    unions = {"d%d" % i: {"anyOf": [{"$ref": "#/$defs/d%d" % (i + 1)}] * 200} for i in range(6)}
    for schema in [{"oneOf": [{"enum": ["%d-%d" % (i, k) for k in range(1000)]} for i in range(60)]},
                   {"type": "object", "properties": {"p%d" % i: {"type": "null"} for i in range(4000)}, "required": ["p1"] * 200000},
                   {"type": "string", "pattern": "^(((a|aa|aaa|b){0,16}){0,16}){0,16}$"}, {"type": "string", "pattern": "a.{1000}$"},
                   {"type": "string", "pattern": "(" + "|".join("[a-z]{%d}" % i for i in range(1, 60)) + ")"},
                   {"$ref": "#/$defs/d0", "$defs": {**unions, "d6": {"type": "string"}}}]:
        response = server.post(CHAT, ask(schema, max_tokens=8))
        assert response.status in (200, 400), response.data
    assert server.complete(max_tokens=2)["usage"]["completion_tokens"] == 2


def constraints_of_other_servers():
    """Public fault: a constraint that a server did not know was ignored, and the answer was not constrained."""
    for name, value in [("grammar", "root ::= [0-9]"), ("json_schema", {"type": "integer"}), ("guided_json", {"type": "integer"}),
                        ("guided_regex", "[0-9]"), ("guided_choice", ["a", "b"]), ("guided_grammar", "x"), ("structured_outputs", {"json": {}})]:
        for path, body in [(CHAT, {"messages": [{"role": "user", "content": "x"}]}), ("/v1/completions", {"prompt": "x"})]:
            server.refused(path, {**body, "max_tokens": 1, name: value}, param=name, code="unsupported")
            assert server.ok(path, {**body, "max_tokens": 1, name: None})


if __name__ == "__main__":
    with Server() as server:
        main(answers_satisfy_their_schemas, formats, any_object, streamed_and_together, schemas_that_are_refused,
             schemas_that_cost_much, constraints_of_other_servers)
