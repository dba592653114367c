// Products of a tile with a block of columns, written once over the vector layer and compiled by every level. The order
// of every sum is docs/MODEL.md's: of unquantized rows two chains a0 and a1 a column, of codes none, their sums are exact.

// acc + pair p of the weights times pair p of column c, odd element first.
MD_INLINE vf dot_pair(vf acc, vpair w, const void *x, size_t p, size_t c, size_t stride) {
#ifdef VEC_BF16_DOT
    const uint32_t *pairs = x;
#ifdef __clang__
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32((int)pairs[p * stride + c]));
#else // in assembly for its broadcasting operand: gcc would load the pair into a register of its own (docs/SPEED.md)
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(pairs[p * stride + c]));
    return acc;
#endif
#else
    const float *xs = x;
    acc = v_fma(w.odd, v_set1(xs[(2 * p + 1) * stride + c]), acc);
    return v_fma(w.even, v_set1(xs[2 * p * stride + c]), acc);
#endif
}

// The same for weights that are not exact in bf16.
MD_INLINE vf dot_wide_pair(vf acc, vf even, vf odd, const void *x, size_t p, size_t c, size_t stride) {
#ifdef VEC_BF16_DOT
    uint32_t pair = ((const uint32_t *)x)[p * stride + c];
    acc = v_fma(odd, v_set1(md_f32_from_bits(pair & 0xffff0000u)), acc);
    return v_fma(even, v_set1(md_f32_from_bits(pair << 16)), acc);
#else
    const float *xs = x;
    acc = v_fma(odd, v_set1(xs[(2 * p + 1) * stride + c]), acc);
    return v_fma(even, v_set1(xs[2 * p * stride + c]), acc);
#endif
}

// Pair of columns number p of an unquantized f16 or f32 tile.
MD_INLINE void dot_load_wide(const uint8_t *at, md_cell cell, vf *even, vf *odd) {
    float e[16], o[16];
    if (cell == MD_CELL_F16) {
        uint16_t half[32];
        memcpy(half, at, sizeof half);
        for (int r = 0; r < 16; r++) e[r] = md_f16_to_f32(half[2 * r]), o[r] = md_f16_to_f32(half[2 * r + 1]);
    } else {
        float value[32];
        memcpy(value, at, sizeof value);
        for (int r = 0; r < 16; r++) e[r] = value[2 * r], o[r] = value[2 * r + 1];
    }
    *even = v_load(e);
    *odd = v_load(o);
}

// The chunk's pairs [0, pairs) times columns c0 .. c0+N: a0 + a1 of each into sum.
MD_INLINE void dot_chunk(const uint8_t *codes, uint32_t pairs, size_t first, const md_dot *d, size_t c0, size_t stride,
                         const int N, const md_cell cell, vf *sum) {
    vf a0[MD_ACT_BLOCK], a1[MD_ACT_BLOCK];
    MD_UNROLL for (int n = 0; n < N; n++) a0[n] = a1[n] = v_set1(0.0f);
    if (cell == MD_CELL_BF16) {
        uint32_t p = 0;
        for (; p + 2 <= pairs; p += 2) {
            vpair w0 = v_pair_bf16(codes + (size_t)p * 64), w1 = v_pair_bf16(codes + (size_t)p * 64 + 64);
            MD_UNROLL for (int n = 0; n < N; n++) {
                a0[n] = dot_pair(a0[n], w0, d->x, first + p, c0 + (size_t)n, stride);
                a1[n] = dot_pair(a1[n], w1, d->x, first + p + 1, c0 + (size_t)n, stride);
            }
        }
        if (p < pairs) { // p is even: it belongs to a0
            vpair w = v_pair_bf16(codes + (size_t)p * 64);
            MD_UNROLL for (int n = 0; n < N; n++) a0[n] = dot_pair(a0[n], w, d->x, first + p, c0 + (size_t)n, stride);
        }
    } else {
        const size_t size = cell == MD_CELL_F16 ? 64 : 128;
        vf even, odd;
        uint32_t p = 0;
        for (; p + 2 <= pairs; p += 2) {
            dot_load_wide(codes + p * size, cell, &even, &odd);
            MD_UNROLL for (int n = 0; n < N; n++) a0[n] =
                dot_wide_pair(a0[n], even, odd, d->x, first + p, c0 + (size_t)n, stride);
            dot_load_wide(codes + (p + 1) * size, cell, &even, &odd);
            MD_UNROLL for (int n = 0; n < N; n++) a1[n] =
                dot_wide_pair(a1[n], even, odd, d->x, first + p + 1, c0 + (size_t)n, stride);
        }
        if (p < pairs) {
            dot_load_wide(codes + p * size, cell, &even, &odd);
            MD_UNROLL for (int n = 0; n < N; n++) a0[n] =
                dot_wide_pair(a0[n], even, odd, d->x, first + p, c0 + (size_t)n, stride);
        }
    }
    MD_UNROLL for (int n = 0; n < N; n++) sum[n] = v_add(a0[n], a1[n]);
}

MD_INLINE void dot_prefetch(const md_dot *d, const uint8_t *chunk, size_t c0) {
    if (d->prefetch && c0 == 0)
        for (uint32_t o = 0; o < d->chunk_bytes; o += 64) VEC_PREFETCH(chunk + d->prefetch + o);
}

// A tile without codes.
MD_INLINE void dot_values(const md_dot *d, const uint8_t *tile, float *out, size_t c0, size_t stride, const int N,
                          const md_cell cell) {
    vf t[MD_ACT_BLOCK], sum[MD_ACT_BLOCK];
    MD_UNROLL for (int n = 0; n < N; n++) t[n] = v_set1(0.0f);
    for (uint32_t g = 0; g < d->chunks; g++) {
        const uint8_t *chunk = tile + (size_t)g * d->chunk_bytes;
        dot_prefetch(d, chunk, c0);
        uint32_t rest = d->cols - g * d->group, size = rest > d->group ? d->group : rest;
        dot_chunk(chunk, (size + 1) / 2, (size_t)g * d->group / 2, d, c0, stride, N, cell, sum);
        MD_UNROLL for (int n = 0; n < N; n++) t[n] = v_add(t[n], sum[n]);
    }
    MD_UNROLL for (int n = 0; n < N; n++) v_store(out + (c0 + (size_t)n) * 16, t[n]);
}

// 64 bytes of codes times their integers at x: one quad of 8 bits, or two of 4.
MD_INLINE void dot_vector(const uint8_t *codes, const uint8_t *x, size_t stride, const int N, const int bits,
                          vacc *acc) {
    vquad w[2];
    MD_UNROLL for (int q = 0; q < 8 / bits; q++) w[q] = bits == 8 ? v_quad8(codes) : v_quad4(codes, q);
    MD_UNROLL for (int q = 0; q < 8 / bits; q++, x += stride * INT_BYTES) {
        MD_UNROLL for (int n = 0; n < N; n++) v_quad_dot(&acc[n], w[q], x + n * INT_BYTES);
    }
}

// `size` (32 or 64) columns of codes times their integers, [size / 4 quads][stride][8 bytes].
MD_INLINE void dot_codes(const uint8_t *codes, const uint8_t *x, size_t stride, const int N, const int bits,
                         const uint32_t size, vacc *acc) {
    const size_t step = 8 / (size_t)bits * stride * INT_BYTES;
    MD_UNROLL for (int n = 0; n < N; n++) v_acc_clear(&acc[n]);
    for (uint32_t i = 0; i < size; i += 32, codes += 64 * bits, x += (size_t)bits * step) {
        MD_UNROLL for (int v = 0; v < bits; v++) dot_vector(codes + 64 * v, x + v * step, stride, N, bits, acc);
    }
}

// A tile of codes in groups of `group`.
MD_INLINE void dot_quantized(const md_dot *d, const uint8_t *tile, float *out, size_t c0, size_t stride, const int N,
                             const int bits, const int wide, const uint32_t group) {
    const uint32_t size = group < INT_BLOCK ? group : INT_BLOCK; // columns of an exact sum
    const uint8_t *x = (const uint8_t *)d->x + c0 * INT_BYTES, *chunk = tile;
    vf t[MD_ACT_BLOCK];
    MD_UNROLL for (int n = 0; n < N; n++) t[n] = v_set1(0.0f);
    for (uint32_t g = 0; g < d->chunks; g++, chunk += d->chunk_bytes) {
        dot_prefetch(d, chunk, c0);
        const uint16_t *half = (const uint16_t *)(const void *)chunk;
        const float *full = (const float *)(const void *)chunk, *x_sum = d->sums + g * stride + c0;
        vf scale = wide ? v_load(full) : v_widen(half), bias = wide ? v_load(full + 16) : v_widen(half + 16);
        const uint8_t *codes = chunk + (wide ? 128 : 64);
        for (uint32_t at = 0; at < group; at += size, codes += 2 * (size_t)bits * size, x += 2 * size * stride) {
            const float *unit = d->unit + (size_t)((g * group + at) / INT_BLOCK) * stride + c0;
            vacc acc[MD_ACT_BLOCK];
            dot_codes(codes, x, stride, N, bits, size, acc);
            MD_UNROLL for (int n = 0; n < N; n++)
                t[n] = v_fma(scale, v_mul(v_acc_float(&acc[n]), v_set1(unit[n])), t[n]);
        }
        MD_UNROLL for (int n = 0; n < N; n++) t[n] = v_fma(bias, v_set1(x_sum[n]), t[n]);
    }
    MD_UNROLL for (int n = 0; n < N; n++) v_store(out + (c0 + (size_t)n) * 16, t[n]);
}

MD_INLINE void dot_tile(const md_dot *d, const uint8_t *tile, float *out, size_t c0, size_t stride, const int N,
                        const md_cell cell, const int wide) {
    const int bits = cell == MD_CELL_Q4 ? 4 : 8;
    if (cell != MD_CELL_Q4 && cell != MD_CELL_Q8)
        dot_values(d, tile, out, c0, stride, N, cell);
    else if (N == 1 && d->group == 64) // what decoding does most
        dot_quantized(d, tile, out, c0, stride, N, bits, wide, 64);
    else
        dot_quantized(d, tile, out, c0, stride, N, bits, wide, d->group);
}

// Blocks of 8, 4, 2 and 1 columns; the two that matter most, 8 and a single column, have constant addresses. `rare`
// cells do with 8 and 1.
MD_INLINE void dot_columns(const md_dot *d, const uint8_t *tile, float *out, const md_cell cell, const int wide,
                           const int rare) {
    size_t c = 0, columns = d->columns;
#if VEC_BLOCK == 8
    if (columns == 1) {
        dot_tile(d, tile, out, 0, 1, 1, cell, wide);
        return;
    }
    if (columns == 8) {
        dot_tile(d, tile, out, 0, 8, 8, cell, wide);
        return;
    }
    for (; !rare && c + 4 <= columns; c += 4) dot_tile(d, tile, out, c, columns, 4, cell, wide);
#endif
    for (; !rare && c + 2 <= columns; c += 2) dot_tile(d, tile, out, c, columns, 2, cell, wide);
    for (; c < columns; c++) dot_tile(d, tile, out, c, columns, 1, cell, wide);
}

static void dot_q4(const md_dot *d, const uint8_t *tile, float *out) { dot_columns(d, tile, out, MD_CELL_Q4, 0, 0); }
static void dot_q4_wide(const md_dot *d, const uint8_t *tile, float *out) {
    dot_columns(d, tile, out, MD_CELL_Q4, 1, 1);
}
static void dot_q8(const md_dot *d, const uint8_t *tile, float *out) { dot_columns(d, tile, out, MD_CELL_Q8, 0, 0); }
static void dot_q8_wide(const md_dot *d, const uint8_t *tile, float *out) {
    dot_columns(d, tile, out, MD_CELL_Q8, 1, 1);
}
static void dot_bf16(const md_dot *d, const uint8_t *tile, float *out) {
    dot_columns(d, tile, out, MD_CELL_BF16, 0, 0);
}
static void dot_f16(const md_dot *d, const uint8_t *tile, float *out) { dot_columns(d, tile, out, MD_CELL_F16, 0, 1); }
static void dot_f32(const md_dot *d, const uint8_t *tile, float *out) { dot_columns(d, tile, out, MD_CELL_F32, 0, 1); }

// ---- activations -------------------------------------------------------------------------------------------------

static void pack_columns(const uint16_t *rows, size_t row_stride, uint32_t columns, uint32_t cols, void *x) {
    for (uint32_t c = 0; c < columns; c++) {
        const uint16_t *row = rows + c * row_stride;
        for (uint32_t p = 0; p < (cols + 1) / 2; p++) {
            // the missing element of an odd row is -0: its product with the zero weight changes no sum, not even -0
            uint32_t even = row[2 * p], odd = 2 * p + 1 < cols ? row[2 * p + 1] : 0x8000;
            if (VEC_ACT == MD_ACT_PAIRS) {
                ((uint32_t *)x)[(size_t)p * columns + c] = even | odd << 16;
            } else {
                float *xs = (float *)x + 2 * (size_t)p * columns + c;
                xs[0] = md_f32_from_bits(even << 16);
                xs[columns] = md_f32_from_bits(odd << 16);
            }
        }
    }
}

#ifdef VEC_BF16_DOT
// Rows of 8 columns, 8 pairs at a time: a transpose of 8 x 8 u32.
static uint32_t pack_eight(const uint16_t *rows, size_t row_stride, uint32_t pairs, uint32_t *x) {
    uint32_t p = 0;
    for (; p + 8 <= pairs; p += 8) {
        __m256i r[8], t[8];
        MD_UNROLL for (int c = 0; c < 8; c++) r[c] =
            _mm256_loadu_si256((const __m256i *)(const void *)(rows + (size_t)c * row_stride + 2 * p));
        MD_UNROLL for (int c = 0; c < 8; c += 2) {
            t[c] = _mm256_unpacklo_epi32(r[c], r[c + 1]);
            t[c + 1] = _mm256_unpackhi_epi32(r[c], r[c + 1]);
        }
        MD_UNROLL for (int c = 0; c < 8; c += 4) {
            r[c] = _mm256_unpacklo_epi64(t[c], t[c + 2]);
            r[c + 1] = _mm256_unpackhi_epi64(t[c], t[c + 2]);
            r[c + 2] = _mm256_unpacklo_epi64(t[c + 1], t[c + 3]);
            r[c + 3] = _mm256_unpackhi_epi64(t[c + 1], t[c + 3]);
        }
        MD_UNROLL for (int i = 0; i < 4; i++) {
            __m256i *to = (__m256i *)(void *)(x + (size_t)(p + (uint32_t)i) * 8);
            _mm256_storeu_si256(to, _mm256_permute2x128_si256(r[i], r[i + 4], 0x20));
            _mm256_storeu_si256(to + 4, _mm256_permute2x128_si256(r[i], r[i + 4], 0x31));
        }
    }
    return p;
}
#endif

static void act_pack(const uint16_t *rows, size_t row_stride, uint32_t columns, uint32_t cols, void *x) {
#ifdef VEC_BF16_DOT
    if (columns == 1 && cols % 2 == 0) { // a row is its pairs already
        memcpy(x, rows, cols * sizeof *rows);
        return;
    }
    if (columns == 8) {
        uint32_t done = pack_eight(rows, row_stride, cols / 2, x);
        pack_columns(rows + 2 * (size_t)done, row_stride, 8, cols - 2 * done, (uint32_t *)x + 8 * (size_t)done);
        return;
    }
#endif
    pack_columns(rows, row_stride, columns, cols, x);
}
