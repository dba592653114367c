#!/usr/bin/env python3
"""CUDA C++ as the kernels are written to C++ for the host, for tests/fakes/emulate.hpp: statements of PTX become calls.

    cuda_to_host.py SOURCE EMULATE_HPP > HOST
"""
import re
import sys

# What a PTX statement does: a part of its text, and the function of emulate.hpp that stands for it. Operands go in their order.
PTX = [
    ("cvt.rn.bf16x2.f32", "ptx_bf16x2"), ("rcp.approx", "ptx_reciprocal"), ("rsqrt.approx", "ptx_reciprocal_root"), ("ex2.approx", "ptx_exp2"),
    ("bar.red.or.pred q, 1,", "ptx_barrier_any"), ("bar.sync", "ptx_barrier"), ("bar.arrive", "ptx_barrier_arrive"), ("ld.shared.u32", "ptx_load_shared"), ("ld.shared.v2.u32", "ptx_load_shared"),
    ("ld.shared.v4.u32", "ptx_load_shared"), ("st.shared.f32", "ptx_store_shared"), ("st.shared.v2.f32", "ptx_store_shared"),
    ("cp.async.cg.shared.global", "ptx_copy16"), ("cp.async.wait_all", "ptx_copies_wait"), ("cp.async.commit_group", "ptx_copies_commit"),
    ("cp.async.wait_group", "ptx_copies_wait_groups"), ("ld.relaxed.gpu.global.b128", "ptx_load_entry"), ("st.relaxed.gpu.global.b128", "ptx_store_entry"),
    ("ld.relaxed.gpu.global.u32", "ptx_load"), ("ld.relaxed.sys.global.u32", "ptx_load"), ("st.release.sys.global.u32", "ptx_store"),
    ("%globaltimer", "ptx_time"), ("mma.sync.aligned.m16n8k16", "ptx_mma_bf16"), ("mma.sync.aligned.m16n8k32", "ptx_mma_codes"),
    ("mbarrier.init", "ptx_mbarrier_init"), ("mbarrier.try_wait.parity", "ptx_mbarrier_test"), ("mbarrier.arrive.expect_tx", "ptx_mbarrier_expect"),
    ("mbarrier.arrive", "ptx_mbarrier_arrive"), ("cp.async.bulk.shared", "ptx_bulk_copy"), ("createpolicy", "ptx_policy"),
    ("ldmatrix.sync.aligned.m8n8.x4.trans", "ptx_matrices_transposed"), ("ldmatrix.sync.aligned.m8n8.x4.shared", "ptx_matrices"),
    ("%%tid.x", "ptx_thread"), ("setmaxnreg", "ptx_nothing"), ("fence.mbarrier_init", "ptx_nothing"),
]


def end_of(text, at):
    """The index behind the parenthesis that closes the one at `at`; strings are skipped."""
    depth = 0
    while True:
        c = text[at]
        if c == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        depth += (c == "(") - (c == ")")
        at += 1
        if depth == 0:
            return at


def split(text, mark):
    """Parts between marks that stand in no string and no parentheses."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        c = text[at]
        if c == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        depth += c in "([{"
        depth -= c in ")]}"
        if c == mark and depth == 0:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return parts + [text[start:]]


def call_of(body):
    body = re.sub(r'"\s*(:{2,})', lambda m: '"' + " :" * len(m.group(1)), body)  # empty lists; elsewhere "::" is a scope
    parts = [p.replace("\0", "::") for p in split(body.replace("::", "\0"), ":")]
    text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', parts[0]))
    operands = [re.sub(r'^\s*"[^"]*"\s*\((.*)\)\s*$', r"\1", o, flags=re.S) for p in parts[1:3] for o in split(p, ",") if o.strip()]
    if not text.strip():
        return "(void)0"
    # A barrier's number is the first operand, or part of the text.
    barrier = re.search(r"\bbar\.(?:sync|arrive|red\.or\.pred q,) (\d+),", text)
    operands = ([barrier.group(1)] if barrier else []) + operands
    for part, function in PTX:
        if part in text:
            return f"{function}({', '.join(operands)})"
    sys.exit(f"no function for: {text}")


def main():
    source = open(sys.argv[1]).read()
    out, at = [f'#include "{sys.argv[2]}"\n'], 0
    for match in re.finditer(r"\basm(\s+volatile)?\s*\(", source):
        if match.start() < at:
            continue
        end = end_of(source, match.end() - 1)
        out += [source[at:match.start()], call_of(source[match.end():end - 1])]
        at = end
    text = "".join(out) + source[at:]
    text = re.sub(r"extern __shared__ __align__\(\d+\) u8 shared\[\];", "", text)
    text = re.sub(r"extern __shared__ (\w+) (\w+)\[\];", r"\1 *const \2 = (\1 *)shared;", text)
    print(text)
    print('#include "' + sys.argv[2].replace("emulate.hpp", "emulate_launch.hpp") + '"')


main()
