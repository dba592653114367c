// Attention over a quantized cache, written once over the vector layer. Queries, and probabilities times their
// position's scale, become integers of 16 bits that share a power of two (docs/MODEL.md); codes meet them in integer
// sums, which are exact, so every level takes the instructions it has.

enum {
    QUAD_BYTES = 8, // four integers of one head, as the vector layer wants them
    HEAD_BYTES = MD_ATTN_BLOCK / 4 * QUAD_BYTES
};

#ifndef VEC_SMALL // sums of integers of 8 bits
typedef vacc vsmall;
MD_INLINE void v_small_clear(vsmall *acc) { v_acc_clear(acc); }
MD_INLINE void v_small_dot(vsmall *acc, vquad w, const void *x) { v_quad_dot(acc, w, x); }
MD_INLINE vf v_small_float(const vsmall *acc) { return v_acc_float(acc); }
#endif
#ifndef VEC_ROUND_PRODUCT
MD_INLINE vf v_round_product(vf a) { return v_round(a); }
#endif

// Reads bits as integers, so that infinities and NaN are the greatest.
MD_INLINE float greatest_magnitude(vf best) {
    float lane[16];
    uint32_t m = 0;
    v_store(lane, best);
    for (int j = 0; j < 16; j++) m = md_f32_bits(lane[j]) > m ? md_f32_bits(lane[j]) : m;
    return md_f32_from_bits(m);
}

// ---- queries -----------------------------------------------------------------------------------------------------

// Heads are taken 8 at a time, then 4, 2, 1 (or as many as the level keeps in registers): how many of `left` are next.
MD_INLINE uint32_t next_heads(uint32_t left) {
    uint32_t count = VEC_BLOCK;
    while (count > left) count /= 2;
    return count;
}

// One head among `count`: x[quad][count], its unit, and the sum of its integers over every group (times `stride`).
static void query_head(const uint16_t *q, float factor, uint32_t head_dim, uint32_t group, uint32_t count, uint8_t *x,
                       float *unit, float *sums, uint32_t stride) {
    vf best = v_set1(0.0f), scale = v_set1(factor), magic = v_set1(MD_EXP_MAGIC);
    for (uint32_t d = 0; d < head_dim; d += 16)
        best = v_max_bits(best, v_abs(v_round_product(v_mul(v_widen(q + d), scale))));
    float inverse;
    *unit = md_shared_unit(greatest_magnitude(best), &inverse);
    for (uint32_t g = 0; g < head_dim; g += group, q += group, sums += stride) {
        vf sum = v_set1(0.0f);
        for (uint32_t d = 0; d < group; d += 16) {
            uint8_t quads[4 * QUAD_BYTES];
            vf t = v_fma(v_round_product(v_mul(v_widen(q + d), scale)), v_set1(inverse), magic);
            sum = v_add(sum, v_sub(t, magic)); // integers below 2^24: exact
            v_store_ints(quads, t);
            for (int i = 0; i < 4; i++, x += (size_t)count * QUAD_BYTES) memcpy(x, quads + i * QUAD_BYTES, QUAD_BYTES);
        }
        *sums = v_sum(sum);
    }
}

static void query_ints(const uint16_t *q, float factor, uint32_t heads, uint32_t head_dim, uint32_t group,
                       const md_queries *to) {
    uint8_t *x = to->x;
    for (uint32_t h = 0, count; h < heads; h += count) {
        count = next_heads(heads - h);
        for (uint32_t i = 0; i < count; i++, q += head_dim)
            query_head(q, factor, head_dim, group, count, x + i * QUAD_BYTES, to->unit + h + i, to->sums + h + i,
                       heads);
        x += (size_t)count * head_dim * 2;
    }
}

// ---- scores ------------------------------------------------------------------------------------------------------

// H heads' sums over the quads that 64 bytes of codes hold: one of 8 bits, two of 4. x: [quad] times `stride`, [H]
// times `head_stride` bytes.
MD_INLINE void quad_dots(const uint8_t *codes, const uint8_t *x, const size_t stride, const size_t head_stride,
                         const int H, const int bits, vacc *acc) {
    if (bits == 8) {
        vquad w = v_quad8(codes);
        MD_UNROLL for (int h = 0; h < H; h++) v_quad_dot(&acc[h], w, x + (size_t)h * head_stride);
        return;
    }
    vquad low = v_quad4(codes, 0), high = v_quad4(codes, 1);
    MD_UNROLL for (int h = 0; h < H; h++) v_quad_dot(&acc[h], low, x + (size_t)h * head_stride);
    MD_UNROLL for (int h = 0; h < H; h++) v_quad_dot(&acc[h], high, x + stride + (size_t)h * head_stride);
}

MD_INLINE void top_dots(const uint8_t *codes, const uint8_t *x, const int H, const int bits, vsmall *acc) {
    if (bits == 8) {
        vquad w = v_quad8(codes);
        MD_UNROLL for (int h = 0; h < H; h++) v_small_dot(&acc[h], w, x + (size_t)h * HEAD_BYTES);
        return;
    }
    vquad low = v_quad4(codes, 0), high = v_quad4(codes, 1);
    MD_UNROLL for (int h = 0; h < H; h++) v_small_dot(&acc[h], low, x + (size_t)h * HEAD_BYTES);
    MD_UNROLL for (int h = 0; h < H; h++) v_small_dot(&acc[h], high, x + QUAD_BYTES + (size_t)h * HEAD_BYTES);
}

// 16 positions against H heads from head h0 on, whose integers lie at x.
MD_INLINE void score_tile(const md_key_codes *keys, const uint8_t *tile, const md_queries *q, const uint8_t *x,
                          uint32_t heads, uint32_t h0, const int H, const int bits, float *s) {
    const uint32_t quads = bits == 8 ? 1 : 2;
    vf t[MD_ACT_BLOCK];
    MD_UNROLL for (int h = 0; h < H; h++) t[h] = v_set1(0.0f);
    for (uint32_t c = 0; c < keys->chunks; c++, tile += keys->chunk_bytes) {
        vacc acc[MD_ACT_BLOCK];
        MD_UNROLL for (int h = 0; h < H; h++) v_acc_clear(&acc[h]);
        const uint8_t *codes = tile + 64;
        for (uint32_t i = 0; i < keys->group / 4; i += quads, codes += 64, x += quads * (uint32_t)H * QUAD_BYTES)
            quad_dots(codes, x, (size_t)H * QUAD_BYTES, QUAD_BYTES, H, bits, acc);
        const uint16_t *scales = (const uint16_t *)(const void *)tile;
        vf scale = v_widen(scales), bias = v_widen(scales + 16);
        const float *sums = q->sums + (size_t)c * heads + h0;
        MD_UNROLL for (int h = 0; h < H; h++) {
            t[h] = v_fma(scale, v_acc_float(&acc[h]), t[h]);
            t[h] = v_fma(bias, v_set1(sums[h]), t[h]);
        }
    }
    MD_UNROLL for (int h = 0; h < H; h++) v_store(s + (size_t)(h0 + (uint32_t)h) * MD_ATTN_BLOCK,
                                                  v_round_product(v_mul(v_set1(q->unit[h0 + (uint32_t)h]), t[h])));
}

MD_INLINE void scores_body(const md_key_codes *keys, const md_queries *q, uint32_t positions, uint32_t heads,
                           const int bits, float *s) {
    const uint8_t *tile = keys->tiles;
    for (uint32_t j = 0; j < positions; j += 16, tile += keys->chunks * keys->chunk_bytes) {
        const uint8_t *x = q->x;
        for (uint32_t h = 0, count; h < heads; h += count) {
            count = next_heads(heads - h);
            switch (count) {
#if VEC_BLOCK == 8
            case 8: score_tile(keys, tile, q, x, heads, h, 8, bits, s + j); break;
            case 4: score_tile(keys, tile, q, x, heads, h, 4, bits, s + j); break;
#endif
            case 2: score_tile(keys, tile, q, x, heads, h, 2, bits, s + j); break;
            default: score_tile(keys, tile, q, x, heads, h, 1, bits, s + j); break;
            }
            x += (size_t)count * keys->chunks * keys->group * 2;
        }
    }
}

static void scores_q4(const md_key_codes *keys, const md_queries *q, uint32_t positions, uint32_t heads, float *s) {
    scores_body(keys, q, positions, heads, 4, s);
}
static void scores_q8(const md_key_codes *keys, const md_queries *q, uint32_t positions, uint32_t heads, float *s) {
    scores_body(keys, q, positions, heads, 8, s);
}

// ---- values ------------------------------------------------------------------------------------------------------

static void shares(const float *m, const float *top, const float *l, uint32_t heads, float *w) {
    for (uint32_t h = 0; h < heads; h += 16) {
        float lane[3][16] = {{0}};
        size_t bytes = (heads - h < 16 ? heads - h : 16) * sizeof *w;
        memcpy(lane[0], m + h, bytes);
        memcpy(lane[1], top + h, bytes);
        memcpy(lane[2], l + h, bytes);
        vf e = v_exp(v_sub(v_load(lane[0]), v_load(lane[1])));
        v_store(lane[0], v_mul(e, v_div(v_set1(1.0f), v_load(lane[2]))));
        memcpy(w + h, lane[0], bytes);
    }
}

// Lanes of positions i .. i+16 that lie past n become zero.
MD_INLINE vf v_until(vf a, uint32_t i, uint32_t n) {
    float lane[16];
    if (i + 16 <= n) return a;
    v_store(lane, a);
    for (uint32_t j = n - i; j < 16; j++) lane[j] = 0.0f;
    return v_load(lane);
}

// One group of dims, prepared for H heads. o is unit * (integer sum of x + 32768 * that of x_top) + rest.
typedef struct value_group {
    float scale[MD_ATTN_BLOCK], middle[MD_ATTN_BLOCK]; // of each position: the scale, the value of the middle code
    _Alignas(64) uint8_t x[MD_ACT_BLOCK][HEAD_BYTES], top[MD_ACT_BLOCK][HEAD_BYTES];
    float unit[MD_ACT_BLOCK], rest[MD_ACT_BLOCK];
} value_group;

static void load_group(const uint16_t *scales, uint32_t n, float half, value_group *to) {
    for (uint32_t i = 0; i < n; i += 16) {
        vf scale = v_until(v_widen(scales + i), i, n), bias = v_until(v_widen(scales + MD_ATTN_BLOCK + i), i, n);
        v_store(to->scale + i, scale);
        v_store(to->middle + i, v_fma(v_set1(half), scale, bias));
    }
}

// p_j * scale_j of head h as integers, of 16 bits or, `wide`, of 22. Codes count from the middle one, so that their
// rounding weighs least.
MD_INLINE void weigh_body(const float *p, const uint32_t n, float half, bool wide, value_group *to, int h) {
    vf a[MD_ATTN_BLOCK / 16], best = v_set1(0.0f), all = v_set1(0.0f), rest = v_set1(0.0f);
    const vf magic = v_set1(MD_EXP_MAGIC);
    MD_UNROLL_IF_KNOWN for (uint32_t i = 0; i < n; i += 16) {
        a[i / 16] = v_mul(v_load(p + i), v_load(to->scale + i));
        best = v_max_bits(best, v_abs(a[i / 16]));
    }
    float inverse, unit = md_shared_unit(greatest_magnitude(best), &inverse);
    wide = wide && unit >= MD_WIDE_LEAST_UNIT;
    if (wide) {
        inverse *= MD_WIDE_FACTOR;
        unit *= 1.0f / MD_WIDE_FACTOR;
    }
    MD_UNROLL_IF_KNOWN for (uint32_t i = 0; i < n; i += 16) {
        vf t = v_fma(a[i / 16], v_set1(inverse), magic);
        v_store_ints(to->x[h] + i / 4 * QUAD_BYTES, t);
        all = v_add(all, v_sub(t, magic)); // integers below 2^24: exact
        rest = v_fma(v_load(p + i), v_load(to->middle + i), rest);
        a[i / 16] = t;
    }
    for (uint32_t i = 0; wide && i < n; i += 16) {
        vf top = v_fma(v_sub(a[i / 16], magic), v_set1(1.0f / MD_WIDE_TOP), magic);
        v_store_ints(to->top[h] + i / 4 * QUAD_BYTES, top);
        v_store_ints(to->x[h] + i / 4 * QUAD_BYTES, v_fma(v_sub(top, magic), v_set1(-MD_WIDE_TOP), a[i / 16]));
    }
    to->unit[h] = unit;
    to->rest[h] = v_sum(v_fma(v_set1(-half * unit), all, rest));
}

static void weigh_head(const float *p, uint32_t n, float half, bool wide, value_group *to, int h) {
    if (n == MD_ATTN_BLOCK)
        weigh_body(p, MD_ATTN_BLOCK, half, wide, to, h);
    else
        weigh_body(p, n, half, wide, to, h);
}

// 16 dims from d on: o[h * dim + d].
MD_INLINE void value_strip(const md_value_codes *v, const value_group *group, uint32_t n, uint32_t d, const int H,
                           const int bits, const bool wide, float *o) {
    const uint32_t step = bits == 8 ? 4 : 8; // positions in 64 bytes
    const uint8_t *codes = v->codes + (size_t)d * (MD_ATTN_BLOCK * bits / 8), *x = group->x[0], *at = codes;
    vf rest[MD_ACT_BLOCK];
    MD_UNROLL for (int h = 0; h < H; h++) rest[h] = v_set1(group->rest[h]);
    if (wide) {
        const uint8_t *top = group->top[0];
        vsmall acc[MD_ACT_BLOCK];
        MD_UNROLL for (int h = 0; h < H; h++) v_small_clear(&acc[h]);
        for (uint32_t j = 0; j < n; j += step, at += 64, top += step / 4 * QUAD_BYTES) top_dots(at, top, H, bits, acc);
        MD_UNROLL for (int h = 0; h < H; h++) rest[h] =
            v_fma(v_small_float(&acc[h]), v_set1(MD_WIDE_TOP * group->unit[h]), rest[h]);
    }
    vacc acc[MD_ACT_BLOCK];
    MD_UNROLL for (int h = 0; h < H; h++) v_acc_clear(&acc[h]);
    for (uint32_t j = 0; j < n; j += step, codes += 64, x += step / 4 * QUAD_BYTES)
        quad_dots(codes, x, QUAD_BYTES, HEAD_BYTES, H, bits, acc);
    MD_UNROLL for (int h = 0; h < H; h++)
        v_store(o + (size_t)h * v->dim + d, v_fma(v_acc_float(&acc[h]), v_set1(group->unit[h]), rest[h]));
}

MD_INLINE void value_heads(const md_value_codes *v, float *e, const float *w, uint32_t n, const int H, const int bits,
                           float *o) {
    const float half = bits == 8 ? 128.0f : 8.0f; // the middle code
    value_group group;
    bool wide = false;
    for (int h = 0; h < H; h++) {
        float *p = e + (size_t)h * MD_ATTN_BLOCK;
        wide |= w[h] >= MD_WIDE_SHARE;
        for (uint32_t i = 0; i < n; i += 16)
            v_store(p + i, v_until(v_round_product(v_mul(v_load(p + i), v_set1(w[h]))), i, n));
    }
    for (uint32_t first = 0; first < v->dim; first += v->group) {
        load_group(v->scales + (size_t)(first / v->group) * 2 * MD_ATTN_BLOCK, n, half, &group);
        if (wide) memset(group.top, 0, sizeof group.top); // of heads that are not
        for (int h = 0; h < H; h++)
            weigh_head(e + (size_t)h * MD_ATTN_BLOCK, n, half, w[h] >= MD_WIDE_SHARE, &group, h);
        for (uint32_t d = first; d < first + v->group; d += 16)
            if (wide)
                value_strip(v, &group, n, d, H, bits, true, o);
            else
                value_strip(v, &group, n, d, H, bits, false, o);
    }
}

MD_INLINE void values_body(const md_value_codes *v, float *e, const float *w, uint32_t positions, uint32_t heads,
                           const int bits, float *o) {
    for (uint32_t h = 0, count; h < heads; h += count) {
        float *from = e + (size_t)h * MD_ATTN_BLOCK, *to = o + (size_t)h * v->dim;
        count = next_heads(heads - h);
        switch (count) {
#if VEC_BLOCK == 8
        case 8: value_heads(v, from, w + h, positions, 8, bits, to); break;
        case 4: value_heads(v, from, w + h, positions, 4, bits, to); break;
#endif
        case 2: value_heads(v, from, w + h, positions, 2, bits, to); break;
        default: value_heads(v, from, w + h, positions, 1, bits, to); break;
        }
    }
}

static void values_q4(const md_value_codes *v, float *e, const float *w, uint32_t positions, uint32_t heads, float *o) {
    values_body(v, e, w, positions, heads, 4, o);
}
static void values_q8(const md_value_codes *v, float *e, const float *w, uint32_t positions, uint32_t heads, float *o) {
    values_body(v, e, w, positions, heads, 8, o);
}
