// Activations as integers of 16 bits, each 64 columns with a power of two of their own (docs/MODEL.md), written once over
// the vector layer.

enum { INT_BLOCK = 64, INT_BYTES = 8, INT_SUM = 32 }; // columns of a unit; bytes of four integers; columns of a sum

#ifndef VEC_REDUCE
MD_INLINE uint32_t v_greatest_bits(vf v) {
    float lane[16];
    uint32_t m = 0;
    v_store(lane, v);
    for (int j = 0; j < 16; j++) m = md_f32_bits(lane[j]) > m ? md_f32_bits(lane[j]) : m;
    return m;
}
#endif

// One column's block of n elements, n = 64 or 32. to: its first integers, unit and sum.
MD_INLINE void ints_of_block(const uint16_t *row, const uint32_t n, const md_ints *to, size_t columns) {
    vf v[INT_BLOCK / 16], best = v_set1(0.0f), magic = v_set1(MD_EXP_MAGIC);
    MD_UNROLL for (uint32_t i = 0; i < n / 16; i++) {
        v[i] = v_widen(row + 16 * i);
        best = v_max_bits(best, v_abs(v[i])); // as integers: infinities and NaN are the greatest
    }
    float scale;
    *to->unit = md_shared_unit(md_f32_from_bits(v_greatest_bits(best)), &scale);
    vf inverse = v_set1(scale);
    uint8_t *x = to->x;
    MD_UNROLL for (uint32_t i = 0; i < n / 16; i += 2) {
        vf t0 = v_fma(v[i], inverse, magic), t1 = v_fma(v[i + 1], inverse, magic);
        uint8_t quads[8 * INT_BYTES];
        v_store_ints(columns == 1 ? x : quads, t0);
        v_store_ints(columns == 1 ? x + 4 * INT_BYTES : quads + 4 * INT_BYTES, t1);
        MD_UNROLL for (int q = 0; columns > 1 && q < 8; q++)
            memcpy(x + q * columns * INT_BYTES, quads + q * INT_BYTES, INT_BYTES);
        x += 8 * columns * INT_BYTES;
        to->sums[i / 2 * columns] = v_sum(v_add(v_sub(t0, magic), v_sub(t1, magic))); // integers below 2^24: exact
    }
}

static void act_ints(const uint16_t *rows, size_t row_stride, uint32_t columns, uint32_t cols, const md_ints *to) {
    for (uint32_t at = 0; at < cols; at += INT_BLOCK)
        for (uint32_t c = 0; c < columns; c++) {
            const md_ints block = {(uint8_t *)to->x + ((size_t)at / 4 * columns + c) * INT_BYTES,
                                   to->unit + (size_t)at / INT_BLOCK * columns + c,
                                   to->sums + (size_t)at / INT_SUM * columns + c};
            const uint16_t *row = rows + c * row_stride + at;
            if (cols - at < INT_BLOCK)
                ints_of_block(row, INT_SUM, &block, columns);
            else if (columns == 1)
                ints_of_block(row, INT_BLOCK, &block, 1);
            else
                ints_of_block(row, INT_BLOCK, &block, columns);
        }
}

static void act_sums(const md_ints *ints, uint32_t columns, uint32_t cols, uint32_t group, float *sums) {
    const float *sum = ints->sums, *unit = ints->unit;
    if (group < INT_BLOCK) { // two groups share a unit
        for (uint32_t g = 0; g < cols / group; g++)
            for (uint32_t c = 0; c < columns; c++) sums[g * columns + c] = sum[g * columns + c] * unit[g / 2 * columns + c];
        return;
    }
    for (uint32_t g = 0; g < cols / group; g++, sums += columns)
        for (uint32_t at = 0; at < group; at += INT_BLOCK, sum += 2 * columns, unit += columns)
            for (uint32_t c = 0; c < columns; c++) {
                float block = (sum[c] + sum[columns + c]) * unit[c];
                sums[c] = at ? sums[c] + block : block;
            }
}
