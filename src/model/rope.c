#include "model/rope.h"

#include "base/mathx.h"

static double llama3_frequency(const md_rope *rope, double inv_freq) {
    const double two_pi = 6.28318530717958647692;
    double wavelength = two_pi / inv_freq;
    double low = rope->original_context / rope->low_freq_factor;
    double high = rope->original_context / rope->high_freq_factor;
    if (wavelength > low) return inv_freq / rope->factor;
    if (wavelength < high) return inv_freq;
    double smooth = (rope->original_context / wavelength - rope->low_freq_factor) /
                    (rope->high_freq_factor - rope->low_freq_factor);
    return inv_freq * ((1 - smooth) / rope->factor + smooth);
}

void md_rope_frequencies(const md_rope *rope, uint32_t head_dim, float *inv_freq, float *scale) {
    *scale = rope->type == MD_ROPE_LINEAR ? (float)(1.0 / rope->factor) : 1.0f;
    for (uint32_t i = 0; i < head_dim / 2; i++) {
        double frequency = md_pow_neg(rope->theta, 2.0 * i, head_dim);
        if (rope->type == MD_ROPE_LLAMA3) frequency = llama3_frequency(rope, frequency);
        inv_freq[i] = (float)frequency;
    }
}
