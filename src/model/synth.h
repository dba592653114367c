// Writes a full MLX snapshot with random weights of a config's shapes and bits: for speed measurements of models whose
// weights are not at hand, and for tests.
//
// Written: config.json (the given one, bits overridden, "_synth" removed, "_note" replaced), model*.safetensors with
// index, and copies of what stands beside the config: generation_config.json (a minimal one where there is none),
// kv_config.json, tokenizer.json with tokenizer_config.json and chat_template.jinja. Without a tokenizer.json, where
// the vocabulary has room for it, one is made up: a byte-level BPE of the 256 bytes without merges, with the config's
// bos and eos tokens; any other id stands for a space and its number.
//
// The config may hold a private object "_synth": {"scales": D, "weights": D, "shard_bytes": N} with D one of "BF16"
// (the default), "F16", "F32": the type of scales and quantization biases, and of everything that is not quantized;
// and the size at which a new weight file begins (default 5 GB, as mlx-lm).
#ifndef MD_MODEL_SYNTH_H
#define MD_MODEL_SYNTH_H

#include "base/status.h"

// md_synth_write itself is public (megadecode.h). It streams into a temporary folder beside `out_dir` and renames it;
// what was written has been opened by md_snapshot_open. Its parts that have files of their own:
struct md_config;
md_status md_synth_weights(const struct md_config *config, const char *dir, const md_synth_options *options,
                           md_error *err);
// synth_tokenizer.c; writes nothing where the vocabulary is too small:
md_status md_synth_tokenizer(const struct md_config *config, const char *dir, md_error *err);

#endif
