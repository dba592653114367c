"""response_format: every answer satisfies its schema (checked by ajv where node is there), or the request is refused."""
import json
import os
import subprocess

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
]


def answers_satisfy_their_schemas():
    cases, whole = [], 0
    for schema in SCHEMAS:
        for seed in range(4):
            choice = server.ok(CHAT, ask(schema, seed, temperature=0 if seed == 0 else 1.5))["choices"][0]
            text = choice["message"]["content"]
            if choice["finish_reason"] == "length":
                continue  # an answer that was cut is no sentence
            whole += 1
            json.loads(text)
            cases.append({"schema": schema, "text": text})
    assert whole >= 0.85 * 4 * len(SCHEMAS), "%d answers came to their end" % whole
    assert len({c["text"] for c in cases}) > 0.5 * len(cases), "the model still chooses"
    validate(cases)


def validate(cases):
    """ajv's word on each text; it also has to refuse texts that were broken on purpose."""
    folder = clients.install()
    if not folder:
        return
    bad = [{"schema": SCHEMAS[0], "text": '{"name": "x"}'}, {"schema": SCHEMAS[3], "text": "[1]"}]
    result = subprocess.run(["node", os.path.abspath("tests/http/clients/validate.mjs")], cwd=folder, text=True,
                            input=json.dumps(cases + bad), capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr
    verdicts = json.loads(result.stdout)
    assert verdicts[-2:] == [False, False]
    for case, good in zip(cases, verdicts):
        assert good, case


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
        {"type": "string", "pattern": "^+[a-z]$"}, {"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "pattern": "(" * 60000},
        {"type": "string", "format": "date"}, {"type": "string", "maxLength": 2000000000}, {"type": "integer", "minimum": 3},
        {"type": "number", "multipleOf": 2}, {"type": "array", "uniqueItems": True}, {"type": "array", "prefixItems": [{}]},
        {"type": "object", "patternProperties": {"a": {}}}, {"type": "object", "minProperties": 1}, {"not": {}}, {"if": {}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}}, {"$ref": "http://example.com/x"}, {"$ref": "#/properties/a"},
        {"$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"allOf": [{"type": "integer"}, {"type": "number"}]},
        {"anyOf": [{"type": "integer"}], "type": "integer"}, {"enum": list(range(2000))}, deep, {"unheardOf": 1},
        {"type": "object", "properties": {"x": {"type": "string", "contentEncoding": "base64"}}}]
    wrong = [{"type": "text"}, {"type": 5}, {"type": []}, {"type": ["string", "x"]}, {"enum": []}, {"enum": 3}, {"anyOf": []},
             {"properties": []}, {"required": "a"}, {"required": [1]}, {"minItems": -1}, {"minItems": 1.5}, {"minItems": 3, "maxItems": 2},
             {"items": 5}, {"items": False, "minItems": 1}, 5, "x", [], False, {"additionalProperties": 3}, {"$ref": 5}, {"$ref": "#/$defs/none"},
             {"type": "object", "required": ["q"], "additionalProperties": False}, {"const": 1, "type": "string"},
             {"enum": [1], "type": "string"}, {"properties": {"a": 5}}]
    for schema in unsupported + wrong:
        for stream in [False, True]:
            message = server.refused(CHAT, ask(schema, stream=stream))
            assert "response_format" in message, message
    server.refused(CHAT, ask({"type": "string", "pattern": "a"}), code="unsupported", param="response_format.json_schema.schema")
    for form in [{"type": "json_schema", "json_schema": {"schema": {}}}, {"type": "json_schema", "json_schema": {"name": "x"}},
                 {"type": "json_object", "schema": {"type": "string", "pattern": "a"}}, {"type": "grammar"}]:
        server.refused(CHAT, {**ask(None), "response_format": form})


if __name__ == "__main__":
    with Server() as server:
        main(answers_satisfy_their_schemas, any_object, streamed_and_together, schemas_that_are_refused)
