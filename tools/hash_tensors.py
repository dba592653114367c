#!/usr/bin/env python3
"""Lists every tensor of a safetensors file with its dtype, shape and the CRC-32 of its bytes, as JSON on stdout.

An independent reader for the tests (json, struct and zlib only):
  tools/hash_tensors.py models/fairytales/model.safetensors > tests/data/fairytales_tensors.json
"""
import json
import struct
import sys
import zlib

data = open(sys.argv[1], "rb").read()
(size,) = struct.unpack_from("<Q", data)
header = json.loads(data[8 : 8 + size])
header.pop("__metadata__", None)
out = {}
for name, entry in sorted(header.items()):
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    out[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "crc32": zlib.crc32(data[begin:end])}
print("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}")
