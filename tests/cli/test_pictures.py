#!/usr/bin/env python3
"""The pictures of `bench -o svg` and `inspect -o svg`: well-formed, no scripts, and every figure in them that of the
same run's JSON. Usage: test_pictures.py PROGRAM"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, "tests")
from checks import check, run_all

PROGRAM = os.path.abspath(sys.argv[1])
MODEL = "models/fairytales"
SVG = "{http://www.w3.org/2000/svg}"
ENV = {k: v for k, v in os.environ.items() if not k.startswith("MEGADECODE_")}


def call(*args, code=0):
    done = subprocess.run([PROGRAM, *args], capture_output=True, timeout=300, env=ENV)
    check(done.returncode == code, f"{args}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def picture(*args):
    """The root of a picture, after what holds for every one."""
    root = ElementTree.fromstring(call(*args, "-o", "svg"))
    check(root.tag == SVG + "svg", f"{args}: root {root.tag}")
    width, height = float(root.get("width")), float(root.get("height"))
    check(root.get("viewBox") == f"0 0 {width:.0f} {height:.0f}", f"{args}: viewBox {root.get('viewBox')}")
    allowed = {SVG + name for name in
               ["svg", "title", "style", "metadata", "rect", "line", "circle", "polyline", "text"]}
    for element in root.iter():
        check(element.tag in allowed, f"{args}: an element {element.tag}")
        for name, value in element.attrib.items():
            check(not name.startswith("on") and "href" not in name and "url(" not in value, f"{args}: {name}={value}")
    style = root.find(SVG + "style").text
    check("prefers-color-scheme:dark" in style and "url" not in style and "@import" not in style, f"style: {style}")
    classes = {name for element in root.iter() for name in element.get("class", "").split()}
    for name in classes:
        check(f".{name}{{" in style or f".{name}," in style, f"{args}: class {name} has no style")
    for element in root.iter(SVG + "text"):
        x, y = float(element.get("x")), float(element.get("y"))
        wide = {"title": 9, "ink": 6.9}.get(element.get("class"), 6.0 if "small" in element.get("class") else 6.4)
        room = len(element.text or "") * wide
        check(0 < y < height, f"{args}: {element.text!r} at y={y} of {height}")
        if element.get("text-anchor") is None:
            check(0 < x and x + room < width, f"{args}: {element.text!r} reaches {x + room} of {width}")
        elif element.get("text-anchor") == "end":
            check(x - room > 0, f"{args}: {element.text!r} begins at {x - room}")
    for element in root.iter(SVG + "rect"):
        right = float(element.get("x")) + float(element.get("width"))
        bottom = float(element.get("y")) + float(element.get("height"))
        check(right <= width and bottom <= height, f"{args}: a shape reaches {right}, {bottom}")
    return root


def texts(root, name=None):
    return [e.text for e in root.iter(SVG + "text") if e.text and (name is None or name in e.get("class").split())]


def hovers(root):
    return [e.text for e in root.iter(SVG + "title")][1:]


def rate(value):
    return f"{value:.1f}" if value < 999.95 else f"{value:.0f}"


def heights(root, name):
    """The sizes of the rectangles of a class, to be compared with the figures they stand for."""
    return [float(e.get("height")) for e in root.iter(SVG + "rect") if e.get("class") == name]


def test_inspect():
    found = json.loads(call("inspect", "-m", MODEL, "--plan", "-o", "json"))
    check(json.loads(call("inspect", "-m", MODEL, "--plan", "--json")) == found, "--json is -o json")
    root = picture("inspect", "-m", MODEL)
    said, hover = texts(root), hovers(root)
    check(f"fairytales: one token, {len(found['plan'])} stages" in said, f"heading: {said[0]}")
    check(any(f"({found['bytes_per_token']:,} bytes)" in text for text in said), f"bytes a token: {said[:4]}")
    check(any(f"{found['kv']['bytes_per_position']:,} bytes a position" in text for text in said), "cache bytes")
    stages = {}
    for stage in found["plan"]:
        stages.setdefault(stage["stage"], []).append(stage)
    check(texts(root, "ink")[1:1 + len(stages)] == list(stages), f"the stages in order: {texts(root, 'ink')}")
    weights = {name: sum(s["bytes"] for s in list_) for name, list_ in stages.items()}
    total = sum(weights.values())
    for name, bytes_ in weights.items():
        if bytes_ == 0:
            continue
        count = len(stages[name])
        check(f"{name}: {bytes_:,} bytes in {count} stage{'s' if count > 1 else ''}" in hover, f"{name}: {hover[:9]}")
        check(f"{100 * bytes_ / total:.0f}%" in said, f"the share of {name}")
    # Heights are in the proportion of the bytes.
    drawn, bytes_ = heights(root, "data"), [b for b in weights.values() if b]
    check(len(drawn) == len(bytes_), f"bars: {drawn}")
    for height, value in zip(drawn, bytes_):
        check(abs(height / max(drawn) - value / max(bytes_)) < 0.01, f"a bar of {height} for {value} bytes")
    # Handoffs: every read and write of the plan, and no other.
    expected = set()
    for name, list_ in stages.items():
        for vector in set(list_[0]["reads"]) | set(list_[0]["writes"]):
            what = [w for w, key in [("reads", "reads"), ("writes", "writes")] if vector in list_[0][key]]
            expected.add(f"{name} {' and '.join(what)} {vector}")
    circles = {e.find(SVG + "title").text for e in root.iter(SVG + "circle") if e.find(SVG + "title") is not None}
    check(circles == expected, f"handoffs: {circles ^ expected}")
    # Cells: every matrix with its bits and bytes, and the cache's bits.
    for matrix in found["matrices"]:
        check(f"{matrix['path']}: {matrix['bits']} bits, {matrix['bytes']:,} bytes" in hover, f"{matrix['path']}")
    for layer, bits in enumerate(found["kv"]["bits"]):
        check(f"KV cache of layer {layer}: {bits} bits" in hover, f"the cache of layer {layer}")
    cells = {bits: len(heights(root, f"b{bits}")) for bits in (4, 8)}
    all_bits = [m["bits"] for m in found["matrices"]] + found["kv"]["bits"]
    check(cells == {4: all_bits.count(4), 8: all_bits.count(8)}, f"cells: {cells}")


def test_shapes():
    """Models of other shapes: unquantized matrices, many layers, tied embeddings, none of which may leave the page."""
    base = json.load(open(f"{MODEL}/config.json", encoding="utf-8"))
    small = {**base, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1,
             "vocab_size": 300}
    for name in ["quantization", "quantization_config"]:
        small.pop(name, None)
    wide = {**small, "num_hidden_layers": 90, "tie_word_embeddings": True}
    for config, cells in [({**small, "num_hidden_layers": 1}, 7 + 2 + 1), (wide, 90 * 7 + 1 + 90)]:
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
                json.dump(config, file)
            call("synth", "--config", f"{folder}/config.json", "-o", f"{folder}/model")
            root = picture("inspect", "-m", f"{folder}/model")
            check(len(heights(root, "b16")) == cells, f"cells of {config['num_hidden_layers']} layers")


def test_names():
    """A folder's name is text in the picture, whatever it holds."""
    with tempfile.TemporaryDirectory() as folder:
        for raw, shown in [(b"a<b>&\"'c", "a<b>&\"'c"), (b"na\xc3\xafve", "na\u00efve"), (b"bad\xff\x01", "bad??"),
                           (b"\xc3\xa9" * 100, None)]:
            path = os.path.join(folder.encode(), raw)
            shutil.copytree(MODEL.encode(), path)
            done = subprocess.run([PROGRAM, "inspect", "-m", path, "-o", "svg"], capture_output=True, timeout=60, env=ENV)
            root = ElementTree.fromstring(done.stdout)
            said = (shown or "\u00e9" * 30 + "...") + ": one token"
            check(texts(root)[0].startswith(said), f"{raw}: {texts(root)[0]}")
            done = subprocess.run([PROGRAM, "bench", "-m", path, "-n", "2", "-p", "0", "-r", "1", "-o", "svg"],
                                  capture_output=True, timeout=60, env=ENV)
            root = ElementTree.fromstring(done.stdout)
            shown = shown or "\u00e9" * 18 + "..."
            check(texts(root)[0] == f"{shown}: resident engine", f"bench of {raw}: {texts(root)[0]}")


def test_bench():
    words = ["bench", "-m", MODEL, "-r", "1", "-n", "8", "-p", "16"]
    root = picture(*words, "--sweep-depth", "800", "--sweep-groups")
    found, said = json.loads(root.find(SVG + "metadata").text), texts(root)
    keys = set(json.loads(call(*words, "-o", "json", "--sweep-depth", "8", "--sweep-groups")))
    check(set(found) == keys, f"the figures are those of -o json: {set(found) ^ keys}")
    check([r["depth"] for r in found["by_depth"]] == [0, 100, 200, 300, 400, 500, 600, 700, 800], "depths")
    values = [r["decode_tps"] for r in found["by_depth"]] + [r["decode_tps"] for r in found["sweep"]]
    shown = [text for text in texts(root, "small") if re.fullmatch(r"[\d.]+", text)]
    check(shown == [rate(v) for v in values], f"rates: {shown} for {values}")
    for row in found["by_depth"]:
        check(str(row["depth"]) in said, f"depth {row['depth']}")
        if row["ceiling_gbps"]:
            check(any(h.startswith(f"depth {row['depth']}: {row['decode_tps']:.1f} tokens/s, {row['read_gbps']:.1f} GB/s")
                      for h in hovers(root)), f"hover of {row}")
    for row in found["sweep"]:
        check(str(row["groups"]) in said, f"{row['groups']} workers")
    if found["ceiling_gbps"]:
        bars = [e for e in root.iter(SVG + "rect") if e.get("class") == "data"]
        shares = [t for t in said if re.fullmatch(r"\d+%", t)]
        expected = [f"{100 * row['ceiling_fraction']:.0f}%" for bar, row in zip(bars, found["sweep"])
                    if float(bar.get("height")) >= 22]  # where there is room; all are in the hover
        check(shares == expected, f"shares: {shares}, expected {expected}")
        for bar, row in zip(bars, found["sweep"]):
            hover = f"{row['groups']}: {row['decode_tps']:.1f} tokens/s, {100 * row['ceiling_fraction']:.0f}% of the ceiling"
            check(bar.find(SVG + "title").text == hover, f"a bar's hover: {bar.find(SVG + 'title').text}, {hover}")
        # The ceiling's height over a bar's is the share's inverse.
        limits = [e for e in root.iter(SVG + "line") if e.get("class") == "limit"]
        base = float(bars[0].get("y")) + float(bars[0].get("height"))
        for bar, limit, row in zip(bars, limits, found["sweep"]):
            height, most = float(bar.get("height")), base - float(limit.get("y1"))  # both to a tenth of a pixel
            check(abs(height - most * row["ceiling_fraction"]) < 0.2 + 0.1 * row["ceiling_fraction"],
                  f"a bar of {height} under {most}: {row}")
    root = picture("bench", "-m", MODEL, "-r", "1", "-n", "4", "-p", "0")
    check(len(heights(root, "data")) == 1, "one measurement, one bar")
    root = picture(*words, "--ab", "ops,resident")
    found = json.loads(root.find(SVG + "metadata").text)
    shown = [text for text in texts(root, "small") if re.fullmatch(r"[\d.]+", text)]
    rates = [found["a"]["decode_tps"], found["decode_tps"], found["a"]["prefill_tps"], found["prefill_tps"]]
    check(shown == [rate(v) for v in rates], f"A/B: {shown} for {rates}")
    check(texts(root).count("ops") == 2 and texts(root).count("resident") == 2, "names of the sides")


def test_bench_forms():
    words = ["bench", "-m", MODEL, "-r", "1", "-n", "4", "-p", "8", "--kv", "snapshot", "--ab", "ops,resident"]
    rows = [line.split(",") for line in call(*words, "-o", "csv").decode().splitlines()]
    check(rows[0] == ["model", "engine", "workers", "depth", "kv", "decode_tps", "prefill_tps", "bytes_per_token",
                      "read_gbps", "ceiling_gbps", "ceiling_fraction", "ratio"], f"columns: {rows[0]}")
    check(len(rows) == 3 and all(len(row) == len(rows[0]) for row in rows), f"rows: {rows}")
    check([row[1] for row in rows[1:]] == ["ops", "resident"] and rows[1][4] == "snapshot", f"rows: {rows}")
    check(rows[1][11] == "" and abs(float(rows[2][11]) * float(rows[1][5]) / float(rows[2][5]) - 1) < 0.01,
          f"one repeat: the ratio is that of the rates: {rows}")
    table = call(*words).decode().split("\n")
    check(table[0].count("|") == table[2].count("|") == 11 and "KV cache snapshot" in "\n".join(table), f"{table}")
    if rows[1][9]:
        check("fit in the processor's cache" in "\n".join(table), f"why the ceiling bounds nothing: {table}")
    call("bench", "-m", MODEL, "-o", "png", code=2)
    call("bench", "-m", MODEL, "-n", "0", "--sweep-depth", "9", code=2)
    call("bench", "-m", MODEL, "--sweep-depth", "5000", code=2)
    call("inspect", "-m", MODEL, "-o", "csv", code=2)


run_all("test_pictures", globals())
