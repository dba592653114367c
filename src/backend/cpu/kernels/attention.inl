// Softmax pieces and the sum over values, written once over the vector layer.

MD_INLINE vf v_exp_falling(vf c) { // v_exp of what is not above the upper limit
    vf low = v_set1(MD_EXP_MIN), magic = v_set1(MD_EXP_MAGIC), one = v_set1(1.0f);
    vf t = v_fma(c, v_set1(MD_EXP_LOG2E), magic);
    vf n = v_sub(t, magic);
    vf r = v_fma(n, v_set1(-MD_EXP_LN2_HI), c);
    r = v_fma(n, v_set1(-MD_EXP_LN2_LO), r);
    vf p = v_fma(v_set1(MD_EXP_C7), r, v_set1(MD_EXP_C6));
    p = v_fma(p, r, v_set1(MD_EXP_C5));
    p = v_fma(p, r, v_set1(MD_EXP_C4));
    p = v_fma(p, r, v_set1(MD_EXP_C3));
    p = v_fma(p, r, v_set1(MD_EXP_C2));
    p = v_fma(p, r, one);
    p = v_fma(p, r, one);
    return v_select_lt(c, low, v_set1(0.0f), v_exp_scale(p, t));
}

MD_INLINE vf v_exp(vf x) { // md_expf (base/mathx.h), lane by lane
    vf limit = v_set1(MD_EXP_MAX);
    return v_exp_falling(v_select_lt(limit, x, limit, x));
}

#ifndef VEC_REDUCE
// The fixed tree that ends every strided sum.
MD_INLINE float v_sum(vf acc) {
    float a[16];
    v_store(a, acc);
    for (int width = 8; width; width /= 2)
        for (int j = 0; j < width; j++) a[j] += a[j + width];
    return a[0];
}

MD_INLINE float v_greatest(vf v) {
    float lane[16], m = -INFINITY;
    v_store(lane, v);
    for (int j = 0; j < 16; j++) m = lane[j] > m ? lane[j] : m;
    return m;
}
#endif

MD_INLINE float max_of(const float *s, uint32_t n) {
    vf best = v_set1(-INFINITY);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) best = v_max(v_load(s + i), best);
    float m = v_greatest(best);
    for (; i < n; i++) m = s[i] > m ? s[i] : m;
    return m;
}

MD_INLINE void softmax_body(float *s, uint32_t heads, const uint32_t n, float *m, float *l) {
    for (uint32_t h = 0; h < heads; h++) m[h] = max_of(s + (size_t)h * MD_ATTN_BLOCK, n);
    for (uint32_t h = 0; h < heads; h++, s += MD_ATTN_BLOCK) {
        vf acc = v_set1(0.0f), top = v_set1(m[h]);
        for (uint32_t i = 0; i < n; i += 16) {
            vf e = v_exp_falling(v_sub(v_load(s + i), top));
            if (i + 16 > n) { // positions past the end count as zero
                float lane[16];
                v_store(lane, e);
                for (uint32_t j = n - i; j < 16; j++) lane[j] = 0.0f;
                e = v_load(lane);
            }
            acc = v_add(acc, e);
            v_store(s + i, e);
        }
        l[h] = v_sum(acc);
    }
}

static void softmax(float *s, uint32_t heads, uint32_t n, float *m, float *l) {
    if (n == MD_ATTN_BLOCK)
        softmax_body(s, heads, MD_ATTN_BLOCK, m, l);
    else
        softmax_body(s, heads, n, m, l);
}

static float weigh(const float *m, const float *l, uint32_t n, float *w, float *top) {
    *top = max_of(m, n);
    for (uint32_t i = 0; i < n; i += 16) v_store(w + i, v_exp(v_sub(v_load(m + i), v_set1(*top))));
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++) sum = fmaf(l[i], w[i], sum);
    return sum;
}

static void scale(const float *t, uint32_t heads, float factor, float *s) {
    for (uint32_t h = 0; h < heads; h++) v_store(s + h * MD_ATTN_BLOCK, v_mul(v_set1(factor), v_load(t + h * 16)));
}

#ifndef VEC_WIDEN_TWO
// 32 bf16 as two vectors, in an order that v_store_two undoes.
MD_INLINE void v_widen_two(const uint16_t *p, vf *two) {
    two[0] = v_widen(p);
    two[1] = v_widen(p + 16);
}
MD_INLINE void v_store_two(float *p, const vf *two) {
    v_store(p, two[0]);
    v_store(p + 16, two[1]);
}
#endif

// V vectors of 16 values of position j from dim d on.
MD_INLINE void value_lanes(const md_values *v, uint32_t j, uint32_t d, const int V, vf *lanes) {
    const uint16_t *half = (const uint16_t *)(const void *)(v->rows + (size_t)j * v->stride) + d;
    if (V == 1) lanes[0] = v_widen(half);
    MD_UNROLL for (int k = 0; k + 2 <= V; k += 2) v_widen_two(half + 16 * k, &lanes[k]);
}

// H heads times V vectors of 16 dims from dim d on: H * V chains in registers over all positions.
MD_INLINE void pv_strip(const md_values *v, const float *p, uint32_t positions, uint32_t d, const int H, const int V,
                        float *o) {
    vf acc[MD_ACT_BLOCK * 2];
    MD_UNROLL for (int i = 0; i < H * V; i++) acc[i] = v_set1(0.0f);
    for (uint32_t j = 0; j < positions; j++) {
        vf lanes[4];
        value_lanes(v, j, d, V, lanes);
        MD_UNROLL for (int h = 0; h < H; h++) {
            vf weight = v_set1(p[(size_t)h * MD_ATTN_BLOCK + j]);
            MD_UNROLL for (int k = 0; k < V; k++) acc[h * V + k] = v_fma(weight, lanes[k], acc[h * V + k]);
        }
    }
    MD_UNROLL for (int h = 0; h < H; h++) {
        float *to = o + (size_t)h * v->dim + d;
        if (V == 1) v_store(to, acc[h]);
        MD_UNROLL for (int k = 0; k + 2 <= V; k += 2) v_store_two(to + 16 * k, &acc[h * V + k]);
    }
}

MD_INLINE void pv_heads(const md_values *v, const float *p, uint32_t positions, const int H, float *o) {
    uint32_t d = 0;
    const int V = H <= 2 ? 4 : 2;
    for (; d + 16 * (uint32_t)V <= v->dim; d += 16 * (uint32_t)V) pv_strip(v, p, positions, d, H, V, o);
    for (; d < v->dim; d += 16) pv_strip(v, p, positions, d, H, 1, o);
}

static void pv_bf16(const md_values *v, const float *p, uint32_t positions, uint32_t heads, float *o) {
    uint32_t h = 0;
#if VEC_BLOCK == 8
    for (; h + 8 <= heads; h += 8) pv_heads(v, p + h * MD_ATTN_BLOCK, positions, 8, o + (size_t)h * v->dim);
    for (; h + 4 <= heads; h += 4) pv_heads(v, p + h * MD_ATTN_BLOCK, positions, 4, o + (size_t)h * v->dim);
#else
    for (; h + 2 <= heads; h += 2) pv_heads(v, p + h * MD_ATTN_BLOCK, positions, 2, o + (size_t)h * v->dim);
#endif
    for (; h < heads; h++) pv_heads(v, p + h * MD_ATTN_BLOCK, positions, 1, o + (size_t)h * v->dim);
}

// V vectors of the sum over blocks, from element i on. The blocks lie far apart: the one after the next is fetched
// ahead.
MD_INLINE void merge_strip(const float *o, size_t stride, const float *w, uint32_t blocks, uint32_t i, const int V,
                           float *acc) {
    vf sum[8];
    MD_UNROLL for (int k = 0; k < V; k++) sum[k] = v_set1(0.0f);
    for (uint32_t b = 0; b < blocks; b++) {
        const float *from = o + b * stride + i;
        vf weight = v_set1(w ? w[b] : 1.0f);
        MD_UNROLL for (int k = 0; k < V; k++) {
            VEC_PREFETCH(from + 2 * stride + 16 * k);
            sum[k] = v_fma(v_load(from + 16 * k), weight, sum[k]);
        }
    }
    MD_UNROLL for (int k = 0; k < V; k++) v_store(acc + i + 16 * k, sum[k]);
}

static void merge(const float *o, size_t stride, const float *w, uint32_t blocks, uint32_t n, float *acc) {
    uint32_t i = 0;
    for (; i + 128 <= n; i += 128) merge_strip(o, stride, w, blocks, i, 8, acc);
    for (; i < n; i += 16) merge_strip(o, stride, w, blocks, i, 1, acc);
}

static void finish(const float *acc, float l, uint32_t n, uint16_t *y) {
    float lane[16];
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t count = n - i < 16 ? n - i : 16;
        uint16_t half[16];
        memset(lane, 0, sizeof lane);
        memcpy(lane, acc + i, count * sizeof *acc);
        v_narrow(half, v_div(v_load(lane), v_set1(l)));
        memcpy(y + i, half, count * sizeof *y);
    }
}
