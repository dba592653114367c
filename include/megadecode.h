// megadecode: Llama-family models in MLX's quantized format, the whole decode step in one resident kernel.
//
// The one public header. A model (weights, engine, tokenizer) is opened once and shared by any number of threads; a
// session is one sequence's timeline on it (tokens and KV cache), used by one thread at a time; a generation turns
// logits into tokens and text. Shortest use: md_model_open, md_session_open, md_encode, md_generate
// (examples/minimal.c).
//
// Rules for everything here: a function that can fail returns md_status and takes `md_error *err` last (may be NULL);
// on MD_OK the error is left untouched. Strings are UTF-8. A struct of options or parameters filled with zeros asks for
// the defaults. What an `_open` function gives is closed by the `_close` function of the same name, which accepts NULL;
// text and arrays given to the caller are freed with md_free. Nothing here calls exit() or prints.
#ifndef MEGADECODE_H
#define MEGADECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MD_API __attribute__((visibility("default")))
#else
#define MD_API
#endif

// ---------------------------------------------------------------- status ----------------------------------------

typedef enum md_status {
    MD_OK = 0,
    MD_E_USAGE,       // an argument the caller passed is wrong
    MD_E_IO,          // the operating system refused or failed
    MD_E_FORMAT,      // a file or message does not hold what its format says
    MD_E_UNSUPPORTED, // well-formed, but not something this program models; the message names it
    MD_E_MEMORY,      // out of memory; the message says how much was asked for
    MD_E_CONTEXT,     // a limit of the session (context length, budget) is reached
    MD_E_TIMEOUT,     // a bounded wait ran out; the message names worker, stage, expected and seen
    MD_E_CANCELLED,   // the caller asked to stop
    MD_E_DEVICE,      // a GPU, driver or library is missing or failed
    MD_E_NOT_FOUND,   // no such file, model or repository
    MD_E_INTERNAL     // a fault of the library itself
} md_status;

typedef struct md_error {
    md_status code;
    char message[512]; // UTF-8, NUL-terminated: which file, tensor or field; found; expected
} md_error;

MD_API const char *md_status_name(md_status status); // "ok", "usage", "format", ...
MD_API const char *md_version(void);                 // "0.1.0"
MD_API void md_free(void *memory);                   // frees what a function here gave the caller; NULL is fine

// ---------------------------------------------------------------- model -----------------------------------------

typedef struct md_model md_model;
typedef struct md_session md_session;
typedef struct md_tokenizer md_tokenizer;

typedef struct md_model_options {
    // "resident" (one dispatch a step; the default), "ops" (one dispatch an operator) or "reference" (plain C, slow).
    const char *engine; // NULL: $MEGADECODE_ENGINE, else the default
    // "cpu", "cuda" or "cuda:N". NULL: $MEGADECODE_DEVICE, else a GPU where one is usable and the CPU otherwise.
    const char *device;
    uint32_t threads;     // CPU threads; 0: $MEGADECODE_THREADS, else as many as the process may run at once
    uint32_t groups;      // workers that share a step (GPU: SMs; on a CPU the threads, so that one of the two is enough
                          // and another number MD_E_USAGE); 0: $MEGADECODE_GROUPS, else the engine's default
    uint32_t deadline_ms; // bound of every wait inside a step; 0: the engine's default
    // Called while weights are loaded, with a fraction 0..1; returning false gives up (MD_E_CANCELLED). May be NULL.
    bool (*progress)(void *user, double fraction);
    void *progress_user;
    bool account; // note where each step's time goes, for md_model_account; steps take a little longer
} md_model_options;

// Opens a snapshot: a folder, or a Hugging Face repo id ("org/name") that lies in the local hub cache. options may be
// NULL. A snapshot without tokenizer.json opens too; it has no tokenizer (md_model_tokenizer gives NULL).
// MD_E_NOT_FOUND, MD_E_FORMAT, MD_E_UNSUPPORTED, MD_E_IO, MD_E_MEMORY, MD_E_USAGE (an option), MD_E_DEVICE.
MD_API md_status md_model_open(const char *model, const md_model_options *options, md_model **out, md_error *err);
// Sessions keep the model alive: its memory goes when it and its last session are closed.
MD_API void md_model_close(md_model *model);

// The folder that `model` (as for md_model_open) stands for: *dir for md_free.
MD_API md_status md_model_dir(const char *model, char **dir, md_error *err);

enum { MD_EOS_MAX = 16 };

typedef struct md_model_info {
    const char *name;    // the last part of the folder or repo id; these strings live as long as the model
    const char *dir;     // the folder the files were read from
    const char *engine;  // "resident", "ops", "reference"
    const char *backend; // "cpu", "cuda"
    char device[128];    // "AVX-512 (vdpbf16ps), 2 threads"
    uint32_t layers, hidden, ffn, vocab, q_heads, kv_heads, head_dim;
    uint32_t context; // most positions a session can have
    uint32_t eos[MD_EOS_MAX];
    uint32_t eos_count;
    uint32_t workers;
    uint32_t max_columns;       // widest step the engine computes
    uint32_t prompt_columns;    // tokens of a prompt it computes at once, and between two calls of `progress`: 1
                                // (reference) to 512 (a GPU)
    uint64_t weight_bytes;      // memory the engine holds the weights in
    uint64_t bytes_per_token;   // weight bytes a decode step reads
    uint64_t kv_bytes_bf16;     // KV cache bytes of one position in bf16
    uint64_t kv_bytes_snapshot; // the same as the snapshot's kv_config.json quantizes it; 0: it has none
    double load_seconds;        // time md_model_open took
} md_model_info;

MD_API void md_model_get_info(const md_model *model, md_model_info *out);
MD_API const md_tokenizer *md_model_tokenizer(const md_model *model); // lives as long as the model; NULL: there is none
MD_API bool md_model_is_eos(const md_model *model, uint32_t token);

// ---------------------------------------------------------------- where time goes -------------------------------

enum { MD_STAGE_KINDS_MAX = 16 };

// A kind of stage: milliseconds a step, means over the workers. On the CPU `weights` and `out` are part of
// `arithmetic`.
typedef struct md_stage_time {
    const char *kind;  // "embed", "qkv", "attn_scores", "attn", "attn_merge", "out", "gate_up", "down", "head", "next"
    uint32_t stages;   // of this kind in a step, those that find nothing to do included
    double setup;      // what comes before the first wait
    double weights;    // waiting for weights from memory
    double handoff;    // waiting for what other workers compute
    double arithmetic; // computing
    double out;        // adding up what a worker's parts have computed, and handing it on
    double slowest;    // all but `handoff`, of the worker for which that is most
} md_stage_time;

typedef struct md_account {
    uint64_t steps; // that it is the mean of; 0: there were none
    uint32_t kinds;
    bool split; // weights and out are told apart
    md_stage_time stage[MD_STAGE_KINDS_MAX];
} md_account;

// Where the time of the steps since the last such call went, of a model opened with `account`. MD_E_UNSUPPORTED where
// the engine keeps none (reference), MD_E_USAGE without the option. Where prompts are computed in a way of their own
// (info.prompt_columns over max_columns) it is about the other steps only: call once behind a prompt, to begin there.
MD_API md_status md_model_account(md_model *model, md_account *out, md_error *err);

// ---------------------------------------------------------------- tokens ----------------------------------------

// Opens a tokenizer alone: of the folder only tokenizer.json is needed (tokenizer_config.json and chat_template.jinja
// are read where present). Immutable, shared freely between threads. Text is any bytes: what is not UTF-8 is read as
// U+FFFD.
MD_API md_status md_tokenizer_open(const char *dir, md_tokenizer **out, md_error *err);
MD_API void md_tokenizer_close(md_tokenizer *tokenizer);
MD_API size_t md_tokenizer_vocab_size(const md_tokenizer *tokenizer); // 1 + the highest id
// The id of a token as tokenizer.json writes it ("<|im_end|>"). False where there is none.
MD_API bool md_tokenizer_find(const md_tokenizer *tokenizer, const char *token, size_t n, uint32_t *id);
// The bytes a token stands for; perhaps part of a character. NULL where the id has none. Borrowed.
MD_API const char *md_tokenizer_token_bytes(const md_tokenizer *tokenizer, uint32_t id, size_t *n);
MD_API bool md_tokenizer_is_special(const md_tokenizer *tokenizer, uint32_t id);

enum {
    MD_ENCODE_ADD_SPECIAL = 1,  // add BOS and the like, as the tokenizer's post-processor says
    MD_ENCODE_PARSE_SPECIAL = 2 // read "<|im_end|>" in the text as the control token; without it no text can become one
};

// A text in pieces, each with its own trust: control tokens are recognised only where all their bytes have `parse`.
typedef struct md_text_span {
    const char *text;
    size_t size; // bytes
    bool parse;
} md_text_span;

// MD_E_FORMAT where it can't be the tokenizer of a model with a vocabulary of `vocab` tokens: an ordinary token's id is
// beyond it, or what begins every text is, or texts become no tokens at all. md_model_open has this checked.
MD_API md_status md_tokenizer_check(const md_tokenizer *tokenizer, uint32_t vocab, md_error *err);

// The tokenizer may be NULL, as a model's without tokenizer.json is: that is MD_E_USAGE, of md_decode too.
// *ids: an array of *n ids for md_free (never NULL on MD_OK). flags: MD_ENCODE_*.
MD_API md_status md_encode(const md_tokenizer *tokenizer, const char *text, size_t size, uint32_t flags, uint32_t **ids,
                           size_t *n, md_error *err);
MD_API md_status md_encode_spans(const md_tokenizer *tokenizer, const md_text_span *spans, size_t span_count,
                                 bool add_special, uint32_t **ids, size_t *n, md_error *err);
// *text: valid UTF-8, *size bytes and a NUL, for md_free. skip_special leaves control tokens out.
MD_API md_status md_decode(const md_tokenizer *tokenizer, const uint32_t *ids, size_t n, bool skip_special, char **text,
                           size_t *size, md_error *err);

// ---------------------------------------------------------------- session ---------------------------------------

typedef struct md_session_options {
    uint32_t context; // positions; 0: the model's maximum, but at most MD_CONTEXT_DEFAULT
    // The KV cache: NULL or "none" = bf16; "snapshot" = as the snapshot's kv_config.json says; "8" or "4" = that many
    // bits in every layer, groups of 64; anything else is the path of a file of kv_config.json's form.
    const char *kv;
    // Where a quantized cache begins. false, as mlx-lm: the prompt is computed with a bf16 cache, which is then
    // quantized (all but the prompt's last token; with a prompt beyond MD_PREFILL_STEP + 1 tokens after the first
    // MD_PREFILL_STEP), and everything after it is appended quantized. true: everything is appended quantized, so that
    // md_session_prepare can always reuse a prefix.
    bool kv_from_start;
} md_session_options;

enum { MD_CONTEXT_DEFAULT = 8192, MD_PREFILL_STEP = 2048 };

// options may be NULL. MD_E_USAGE (a context beyond the model's, a bad kv), MD_E_MEMORY and what kv's file can give.
MD_API md_status md_session_open(md_model *model, const md_session_options *options, md_session **out, md_error *err);
MD_API void md_session_close(md_session *session);

MD_API md_model *md_session_model(const md_session *session);
MD_API uint32_t md_session_context(const md_session *session);           // positions it can hold
MD_API uint32_t md_session_position(const md_session *session);          // tokens computed so far
MD_API const uint32_t *md_session_tokens(const md_session *session);     // [position]
MD_API uint64_t md_session_kv_bytes(const md_session *session);          // memory its KV cache takes now
MD_API uint64_t md_session_kv_position_bytes(const md_session *session); // what one position takes, as `kv` stores it
// The logits after the last token, [vocab] fp32 holding bf16 values; NULL when there are none (nothing computed yet,
// after a rewind, or the last step did not want them). Valid until the session's next change.
MD_API const float *md_session_logits(const md_session *session);

// Appends n tokens, computed in the widest steps the engine has; logits of the last are there afterwards. How a
// timeline is cut into calls changes no bit of it. MD_E_CONTEXT when they do not fit (nothing is appended), MD_E_USAGE
// (an id beyond the vocabulary), MD_E_TIMEOUT and MD_E_DEVICE (the session stays at a position between, and usable).
MD_API md_status md_session_feed(md_session *session, const uint32_t *tokens, size_t n, md_error *err);

// The same, and calls `seen` after each token with its position and the logits after it (valid during the call); false
// from `seen` stops (MD_E_CANCELLED).
typedef bool (*md_logits_fn)(void *user, uint32_t position, const float *logits);
MD_API md_status md_session_feed_each(md_session *session, const uint32_t *tokens, size_t n, md_logits_fn seen,
                                      void *user, md_error *err);

// Makes the timeline equal to the n >= 1 tokens of a whole prompt: keeps the longest prefix that it has already
// (*reused, may be NULL), drops the rest, and computes what is missing, the last token at least, so that logits are
// there. The result has the same bits as computing all of it afresh; where a quantized cache could not give that (it
// was quantized at another position), nothing is reused. Errors as md_session_feed.
MD_API md_status md_session_sync(md_session *session, const uint32_t *tokens, size_t n, uint32_t *reused,
                                 md_error *err);

// md_session_sync in parts, for callers that do other work between: prepare trims and remembers the prompt; each
// advance computes up to `most` of the missing tokens (0: all) and says how many are left. Other calls that change the
// timeline drop what is left.
MD_API md_status md_session_prepare(md_session *session, const uint32_t *tokens, size_t n, uint32_t *reused,
                                    md_error *err);
MD_API md_status md_session_advance(md_session *session, uint32_t most, uint32_t *left, md_error *err);

// How many tokens of that prompt md_session_prepare would reuse.
MD_API uint32_t md_session_reusable(const md_session *session, const uint32_t *tokens, size_t n);

MD_API md_status md_session_rewind(md_session *session, uint32_t position, md_error *err); // keeps [0, position)
// After a failure of these three a session is as it was, or (md_session_copy) empty.
// Makes dst's timeline the first `positions` tokens of src's; both of one model and opened with the same kv.
MD_API md_status md_session_copy(md_session *dst, const md_session *src, uint32_t positions, md_error *err);
// Quantizes the cache as opened with `kv`, from here on and for what is in it; nothing to do for bf16 or when it is
// done. md_session_sync does this by itself at the right place; md_session_feed never does.
MD_API md_status md_session_quantize(md_session *session, md_error *err);
// Advances n positions without computing them: their entries hold zeros or old values. For benchmarks at a depth only.
MD_API md_status md_session_skip(md_session *session, uint32_t n, md_error *err);

// One step for several sessions of one model: each column appends one token to its session. Columns of one session
// follow each other in the array. Each session gets the bits it would have alone. n <= max_columns of the model. After
// a failure (MD_E_TIMEOUT, ...) no session has moved.
typedef struct md_batch_column {
    md_session *session;
    uint32_t token;
    bool want_logits; // then md_session_logits has them; of several columns of a session only the last may ask
} md_batch_column;
MD_API md_status md_batch_step(md_model *model, const md_batch_column *columns, uint32_t n, md_error *err);

// ---------------------------------------------------------------- generation ------------------------------------

typedef struct md_logit_bias {
    uint32_t token;
    float bias; // added to the token's logit; -INFINITY forbids it
} md_logit_bias;

// How a token is chosen. In this order: `adjust`; logit biases; penalties; the result rounded to bf16 as all logits
// are; temperature 0: the greatest, the lowest id of equals. Otherwise divided by temperature, top_k, top_p, min_p
// (each over what the one before left), and one draw. Of equal logits the lower ids come first.
typedef struct md_sampling {
    double temperature; // 0: greedy
    uint32_t top_k;     // keep the k greatest; 0: off
    double top_p;       // keep the fewest that hold this probability; 0 or 1: off
    double min_p;       // keep those with at least min_p times the greatest probability; 0: off
    // Over prompt and answer: a logit > 0 of a token that occurred is divided by it, else multiplied. 0 or 1: off.
    double repetition_penalty;
    double presence_penalty;  // subtracted from tokens that the answer has already (OpenAI's definition); 0: off
    double frequency_penalty; // subtracted for each time the answer has it; 0: off
    uint32_t penalty_window;  // the penalties look at this many last tokens; 0: all
    // Draw number i uses splitmix64 of the seed at i: the same seed gives the same text on every machine, engine of one
    // backend, and thread count.
    uint64_t seed;
    const md_logit_bias *bias; // [bias_count], borrowed while the generation lives
    size_t bias_count;
    // May change the logits (a working copy, [vocab]) before a token is chosen, as a constraint does by setting them to
    // -INFINITY. A status other than MD_OK ends the generation with it. May be NULL.
    md_status (*adjust)(void *user, float *logits, uint32_t vocab, md_error *err);
    void *adjust_user;
} md_sampling;

// What the snapshot's generation_config.json recommends: its temperature (1 when it gives none), top_p, top_k, min_p if
// it says do_sample, greedy otherwise; its repetition penalty. The rest is off.
MD_API void md_model_sampling(const md_model *model, md_sampling *out);
MD_API uint64_t md_random_seed(void); // below 2^53, from the operating system

typedef enum md_finish {
    MD_FINISH_NONE,     // goes on
    MD_FINISH_STOP,     // an end-of-text token or a stop string
    MD_FINISH_LENGTH,   // max_tokens
    MD_FINISH_CONTEXT,  // the session is full
    MD_FINISH_CANCELLED // the caller said so
} md_finish;
MD_API const char *md_finish_name(md_finish finish); // "none", "stop", "length", "context", "cancelled"

enum { MD_STOP_MAX = 64, MD_STOP_SIZE_MAX = 4096, MD_TOP_LOGPROBS_MAX = 64 };

typedef struct md_generation_params {
    md_sampling sampling;
    uint32_t max_tokens;     // 0: until the context is full
    const char *const *stop; // [stop_count] strings that end the text and are not part of it; copied; UTF-8, none empty
    size_t stop_count;       // at most MD_STOP_MAX, each of at most MD_STOP_SIZE_MAX bytes
    bool ignore_eos;         // go on past end-of-text tokens
    bool keep_special;       // write control tokens into the text
    bool logprobs;           // fill md_token.logprob
    uint32_t top_logprobs;   // and the likeliest tokens; at most MD_TOP_LOGPROBS_MAX
    // While the prompt is computed (md_generate only), with tokens done and all of them; false cancels. May be NULL.
    bool (*progress)(void *user, uint32_t done, uint32_t total);
    void *progress_user;
} md_generation_params;

typedef struct md_logprob {
    uint32_t token;
    double logprob; // natural logarithm of its probability under the model's own logits (before any of md_sampling)
} md_logprob;

typedef struct md_token {
    uint32_t id;
    bool hidden;           // not part of the text: an end-of-text token, or all of it belongs to a stop string
    uint64_t text_offset;  // byte of the whole answer at which its text begins
    double logprob;        // when asked for
    const md_logprob *top; // [top_count], likeliest first
    uint32_t top_count;
} md_token;

// How likely logits [vocab] make `token`, and their top_count (at most MD_TOP_LOGPROBS_MAX) likeliest tokens in
// top[top_count], likeliest first: what md_token says of a chosen token, for any logits (md_session_feed_each).
// MD_E_USAGE, MD_E_MEMORY.
MD_API md_status md_logprobs(const float *logits, uint32_t vocab, uint32_t token, uint32_t top_count, md_logprob *top,
                             double *logprob, md_error *err);

// A piece of an answer. Text comes in whole characters; what may become a stop string is held back until it is decided,
// and so are the tokens it comes from. All pointers are valid until the generation's next call.
typedef struct md_piece {
    const char *text;       // NUL-terminated, perhaps empty, may hold NULs
    size_t size;            // bytes
    const md_token *tokens; // those whose text this piece completes
    size_t token_count;
    uint32_t next;    // the token just chosen: what to feed to the session next
    md_finish finish; // not MD_FINISH_NONE: this is the last piece
    int stop_index;   // which stop string ended it; -1: none
} md_piece;

// A generation chooses tokens from a session's logits, one call a token; the caller feeds piece.next to the session,
// alone (md_session_feed) or as a column of md_batch_step:
//     md_session_sync(session, prompt); md_generation_open(session, params, &generation);
//     for (;;) { md_generation_next(generation, &piece); deliver(piece); if (piece.finish) break; feed(piece.next); }
typedef struct md_generation md_generation;

// The session's tokens so far are the prompt. MD_E_USAGE for parameters out of range, naming the parameter;
// MD_E_UNSUPPORTED when there is no tokenizer and stop strings are asked for (without one the text stays empty).
MD_API md_status md_generation_open(md_session *session, const md_generation_params *params, md_generation **out,
                                    md_error *err);
MD_API void md_generation_close(md_generation *generation);
// Chooses the next token from md_session_logits. MD_E_USAGE without logits or after the last piece.
MD_API md_status md_generation_next(md_generation *generation, md_piece *piece, md_error *err);
// Ends it early: the text held back comes out, with MD_FINISH_CANCELLED.
MD_API md_status md_generation_cancel(md_generation *generation, md_piece *piece, md_error *err);

// Many tokens for several generations of one model in one call, each with a session of its own: feeds each `token`,
// chooses the next, hands on its piece and goes on, until one of the generations ends or its on_piece says false, or
// each has up to max_tokens. Where the engine can't choose (it has no such call; a request has biases, penalties,
// `adjust` or log-probabilities; a draw fell beyond the likeliest 64 tokens), `choose` says that the session has logits
// for md_generation_next instead; so it is for all when max_tokens is 1. Tokens are those that md_generation_next
// gives. Errors as md_batch_step; pieces that came before are valid.
typedef struct md_batch_turn {
    md_generation *generation;
    uint32_t token; // chosen, not fed yet; afterwards the last chosen, which is not fed yet
    // May be NULL. It must not use sessions of the same model: on a GPU that is refused with MD_E_USAGE.
    bool (*on_piece)(void *user, const md_piece *piece);
    void *user;
    bool choose; // out: nothing is left to feed; md_generation_next has to choose
    // out: code MD_OK, or what ended this generation alone (MD_E_MEMORY: its piece had no room). The call is MD_OK, the
    // others have gone on as far as they came.
    md_error error;
} md_batch_turn;
MD_API md_status md_batch_generate(md_model *model, md_batch_turn *turns, uint32_t n, uint32_t max_tokens,
                                   md_error *err);

typedef struct md_result {
    md_finish finish;
    int stop_index;             // which stop string; -1: none
    uint32_t prompt_tokens;     // all of the prompt
    uint32_t cached_tokens;     // of these, reused from the session
    uint32_t completion_tokens; // chosen, an end-of-text token included
    double prefill_seconds;     // computing the prompt
    double first_seconds;       // from the call to the first token
    double decode_seconds;      // from the first token to the end
} md_result;

// The whole loop: md_session_sync with the prompt, then pieces to `on_piece` (false from it cancels) until the end.
// on_piece may be NULL. The tokens of the answer stay in the session but for the last chosen, so that a continued chat
// reuses them. A cancel is MD_OK with finish MD_FINISH_CANCELLED. MD_E_CONTEXT when the prompt does not fit, with
// both numbers. *result (may be NULL) is filled also on failure, as far as it came.
typedef bool (*md_piece_fn)(void *user, const md_piece *piece);
MD_API md_status md_generate(md_session *session, const uint32_t *prompt, size_t n, const md_generation_params *params,
                             md_piece_fn on_piece, void *user, md_result *result, md_error *err);

// ---------------------------------------------------------------- inspect ---------------------------------------

typedef struct md_inspect_options {
    const char *kv; // KV cache whose bytes are reported, as in md_session_options; NULL: "snapshot" where there is one
    bool plan;      // add "plan": the stages of a step
} md_inspect_options;

// Describes a snapshot without loading its weights: *json is one JSON object for md_free (docs/API.md lists its keys).
// MD_E_FORMAT where a scale, bias or norm is no finite number.
MD_API md_status md_inspect(const char *model, const md_inspect_options *options, char **json, md_error *err);

// ---------------------------------------------------------------- synthetic models ------------------------------

typedef struct md_synth_options {
    uint64_t seed; // the same seed and config give the same bytes
    uint32_t bits; // of every quantized matrix; 0: as the config says. A config without quantization gets it then.
    // Called while weights are written, with a fraction 0..1; returning false gives up (MD_E_CANCELLED). May be NULL.
    bool (*progress)(void *user, double fraction);
    void *progress_user;
} md_synth_options;

// Writes an MLX snapshot with random weights of the shapes and bits of a config.json to the folder `out_dir`, which
// must not exist or be empty: whole or not at all, little memory. MD_E_USAGE (the folder, the bits) and what reading a
// config can give. For measuring speed where a model's weights are not
// at hand.
MD_API md_status md_synth_write(const char *config_path, const char *out_dir, const md_synth_options *options,
                                md_error *err);

// ---------------------------------------------------------------- GPUs ------------------------------------------

// What there is to compute on, as a JSON array: {"device": "cpu", "name", "cpus": how many the process may use,
// "kernels": "avx512", "usable"} first, then a member a GPU: {"device": "cuda:0", "name", "sm": "9.0", "sms", "memory",
// "usable", "why" where it is not}. Without a driver there are no GPUs and the
// last member is {"device": "cuda", "usable": false, "why"}. *json is malloc'd (md_free).
MD_API md_status md_devices(char **json, md_error *err);

// The generated CUDA source of a model's kernel for steps of up to `columns` columns (1, 2, 4 or 8; 0 = 1), or of the
// launches that compute prompts (64), on an architecture ("sm_90a"; NULL = that). *source is malloc'd (md_free). Needs
// no GPU. MD_E_UNSUPPORTED names what the kernels don't model, MD_E_USAGE an architecture that is none of theirs.
MD_API md_status md_emit_cuda(const char *model, const char *arch, uint32_t columns, char **source, md_error *err);

#ifdef __cplusplus
}
#endif

#endif
