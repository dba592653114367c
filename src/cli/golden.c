#include "cli/golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/bf16.h"
#include "base/file.h"
#include "base/json.h"

enum { JSON_MAX = 64 << 20, IDS_MAX = 1 << 20, LEGAL_STEPS = 2 };
static const size_t LOGITS_MAX = (size_t)1 << 34;

static md_status read_ids(const json_t *object, const char *key, uint32_t vocab, const char *path, uint32_t **out,
                          size_t *count, md_error *err) {
    const json_t *array = json_object_get(object, key);
    if (!json_is_array(array) || json_array_size(array) > IDS_MAX)
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %s, expected an array of token ids", path, key,
                       md_json_type_name(array));
    *count = json_array_size(array);
    *out = calloc(*count + 1, sizeof **out);
    if (!*out) return md_fail(err, MD_E_MEMORY, "%s: out of memory for %zu ids", path, *count);
    for (size_t i = 0; i < *count; i++) {
        const json_t *id = json_array_get(array, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= vocab)
            return md_fail(err, MD_E_FORMAT, "%s: %s[%zu] is no token id below %u", path, key, i, vocab);
        (*out)[i] = (uint32_t)json_integer_value(id);
    }
    return MD_OK;
}

// The logits file lies beside the golden: the folder of `path` and the name the golden gives, which may not lead
// elsewhere.
static md_status read_logits(const json_t *object, const char *path, md_golden *out, md_error *err) {
    const char *name = NULL;
    MD_TRY(md_json_get_string(object, "logits", &name, path, err));
    if (!name || strchr(name, '/'))
        return md_fail(err, MD_E_FORMAT, "%s: \"logits\" is %s, expected the name of a file beside it", path,
                       name ? name : "missing");
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    char *full = malloc(folder + strlen(name) + 1);
    if (!full) return md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
    memcpy(full, path, folder);
    strcpy(full + folder, name);
    char *bytes;
    size_t size, expected = out->steps * (size_t)out->vocab * 2;
    md_status status = md_file_read_all(full, LOGITS_MAX, &bytes, &size, err);
    if (status == MD_OK && size != expected) {
        free(bytes);
        status = md_fail(err, MD_E_FORMAT, "%s: %zu bytes, expected %zu steps x %u logits x 2 = %zu", full, size,
                         out->steps, out->vocab, expected);
    } else if (status == MD_OK) {
        out->logits = (uint16_t *)(void *)bytes; // malloc'd, so aligned
    }
    free(full);
    return status;
}

static md_status read_fields(const json_t *object, const char *path, md_golden *out, md_error *err) {
    int64_t vocab = 0;
    MD_TRY(md_json_get_int(object, "vocab_size", 1, 1 << 24, &vocab, path, err));
    if (vocab == 0) return md_fail(err, MD_E_FORMAT, "%s: \"vocab_size\" is missing", path);
    out->vocab = (uint32_t)vocab;
    MD_TRY(md_json_get_bool(object, "kv_config", &out->kv_quantized, path, err));
    MD_TRY(read_ids(object, "prefill_ids", out->vocab, path, &out->prefill, &out->prefill_count, err));
    MD_TRY(read_ids(object, "decode_ids", out->vocab, path, &out->decode, &out->steps, err));
    if (out->steps == 0) return md_fail(err, MD_E_FORMAT, "%s: \"decode_ids\" is empty", path);
    return read_logits(object, path, out, err);
}

md_status md_golden_read(const char *path, md_golden *out, md_error *err) {
    *out = (md_golden){0};
    json_t *object;
    MD_TRY(md_json_read_file(path, JSON_MAX, &object, err));
    md_status status = json_is_object(object)
                           ? read_fields(object, path, out, err)
                           : md_fail(err, MD_E_FORMAT, "%s: %s, expected an object", path, md_json_type_name(object));
    json_decref(object);
    if (status != MD_OK) md_golden_free(out);
    return status;
}

void md_golden_free(md_golden *golden) {
    free(golden->prefill);
    free(golden->decode);
    free(golden->logits);
    *golden = (md_golden){0};
}

md_status md_score_begin(md_score *score, md_error *err) {
    *score = (md_score){.hash = XXH64_createState()};
    if (!score->hash) return md_fail(err, MD_E_MEMORY, "out of memory");
    XXH64_reset(score->hash, 0);
    return MD_OK;
}

void md_score_end(md_score *score) {
    score->digest = XXH64_digest(score->hash);
    XXH64_freeState(score->hash);
    score->hash = NULL;
}

// Distance of two bf16 values in representable steps.
static uint32_t bf16_steps(uint16_t a, uint16_t b) {
    int32_t x = a & 0x8000 ? -(a & 0x7fff) : a, y = b & 0x8000 ? -(b & 0x7fff) : b;
    return (uint32_t)abs(x - y);
}

double md_kl_divergence(const uint16_t *expected, const float *found, uint32_t vocab) {
    double expected_max = -INFINITY, found_max = -INFINITY, expected_sum = 0, found_sum = 0, kl = 0;
    for (uint32_t v = 0; v < vocab; v++) {
        expected_max = fmax(expected_max, md_bf16_to_f32(expected[v]));
        found_max = fmax(found_max, found[v]);
    }
    for (uint32_t v = 0; v < vocab; v++) {
        expected_sum += exp((double)md_bf16_to_f32(expected[v]) - expected_max);
        found_sum += exp((double)found[v] - found_max);
    }
    // A row holds at least one logit, so both sums are at least 1.
    // cppcheck-suppress invalidFunctionArg
    double expected_log = expected_max + log(expected_sum), found_log = found_max + log(found_sum);
    for (uint32_t v = 0; v < vocab; v++) {
        double logp = (double)md_bf16_to_f32(expected[v]) - expected_log, p = exp(logp);
        if (p > 1e-12) kl += p * (logp - ((double)found[v] - found_log));
    }
    return kl;
}

void md_score_row(md_score *score, const uint16_t *expected, const float *found, uint32_t vocab) {
    uint32_t theirs = 0, ours = 0;
    bool nan = false;
    for (uint32_t v = 0; v < vocab; v++) {
        uint16_t half = md_bf16_from_f32(found[v]);
        XXH64_update(score->hash, &half, sizeof half);
        nan |= isnan(found[v]);
        if (md_bf16_to_f32(expected[v]) > md_bf16_to_f32(expected[theirs])) theirs = v;
        if (found[v] > found[ours]) ours = v;
        score->max_abs_diff = fmax(score->max_abs_diff, fabs((double)found[v] - md_bf16_to_f32(expected[v])));
    }
    score->steps++;
    score->nan += nan;
    if (nan) return;
    if (ours == theirs)
        score->agree++;
    else if (bf16_steps(expected[theirs], expected[ours]) <= LEGAL_STEPS)
        score->legal_flips++;
    double kl = md_kl_divergence(expected, found, vocab);
    score->kl_sum += kl;
    score->kl_max = fmax(score->kl_max, kl);
}
