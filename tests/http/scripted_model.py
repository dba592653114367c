"""A snapshot whose answers are known: a chain of tokens, written by hand, for tests of what becomes of an answer.

The embedding of token t is the unit vector t, every matrix of the layer is zero, and row t of the head is the unit
vector of the token before t in a script. So the token after t is always the next one of its script, with a logit of
sqrt(hidden) against 0 for all others. A script is picked by the prompt's last token, "<|NAME|>".
"""
import json
import os
import struct

HIDDEN, HEADS, HEAD_DIM, FFN = 768, 12, 64, 64


def byte_alphabet():
    """The printable characters that byte-level BPE writes bytes with (GPT-2's table)."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in plain:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def matrix(name, rows, columns, ones):
    """An affine 4-bit matrix of zeros with a one at each (row, column) of ones: scale 1, bias 0."""
    words = bytearray(rows * columns // 2)
    for row, column in ones:
        at = row * columns + column
        words[at // 2] |= 1 << (4 * (at % 2))
    groups = rows * columns // 64
    return {
        name + ".weight": ("U32", [rows, columns // 8], bytes(words)),
        name + ".scales": ("BF16", [rows, columns // 64], struct.pack("<H", 0x3F80) * groups),
        name + ".biases": ("BF16", [rows, columns // 64], struct.pack("<H", 0) * groups),
    }


def write(folder, scripts, template, starts={}, control=()):
    """scripts: {name: [bytes, ...]}: the pieces of an answer, each one token. starts: {name: text} where it is another
    token than "<|NAME|>" that picks the script. control: pieces that are control tokens, as some tokenizers declare marks."""
    alphabet = byte_alphabet()
    vocab = {alphabet[b]: b for b in range(256)}
    start = {name: starts.get(name, "<|%s|>" % name) for name in scripts}
    added = ["<s>", "</s>", "<|user|>", "<|assistant|>"] + list(start.values())
    added += [piece.decode() for piece in control if piece.decode() not in added]
    ids = {text: 256 + i for i, text in enumerate(added)}
    size = 256 + len(added)
    bos, eos = ids["<s>"], ids["</s>"]
    after = {}  # token -> the token that follows it
    for name, pieces in scripts.items():
        last = ids[start[name]]
        for piece in pieces:
            text = "".join(alphabet[b] for b in piece)
            token = ids[piece.decode()] if piece in control else vocab.get(text)
            if token is None:
                token = vocab[text] = size
                size += 1
            assert token not in after, "the piece %r occurs twice: a token has one successor" % piece
            after[last] = token
            last = token
        after[last] = eos
    assert size <= HIDDEN, "too many pieces"
    size = HIDDEN
    tensors = {}
    tensors.update(matrix("model.embed_tokens", size, HIDDEN, [(t, t) for t in range(size)]))
    tensors.update(matrix("lm_head", size, HIDDEN, [(second, first) for first, second in after.items()]))
    layer = "model.layers.0."
    for name, rows, columns in [("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN), ("self_attn.k_proj", HEAD_DIM, HIDDEN),
                                ("self_attn.v_proj", HEAD_DIM, HIDDEN), ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
                                ("mlp.gate_proj", FFN, HIDDEN), ("mlp.up_proj", FFN, HIDDEN),
                                ("mlp.down_proj", HIDDEN, FFN)]:
        tensors.update(matrix(layer + name, rows, columns, []))
    for name in ["model.norm", layer + "input_layernorm", layer + "post_attention_layernorm"]:
        tensors[name + ".weight"] = ("BF16", [HIDDEN], struct.pack("<H", 0x3F80) * HIDDEN)

    os.makedirs(folder, exist_ok=True)
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))

    def save(name, value):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(value, out)

    save("config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": 1,
        "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": HEAD_DIM,
        "vocab_size": size, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
        "bos_token_id": bos, "eos_token_id": eos, "quantization": {"group_size": 64, "bits": 4, "mode": "affine"}})
    save("generation_config.json", {"bos_token_id": bos, "eos_token_id": eos, "do_sample": False})
    save("tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template})
    save("tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": ids[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for t in added],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": []}})
