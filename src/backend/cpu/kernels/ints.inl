// Activations as integers of 16 bits, each 64 columns with a power of two of their own (docs/MODEL.md), written once
// over the vector layer.

enum { INT_BLOCK = 64, INT_BYTES = 8, INT_SUM = 32 }; // columns of a unit; bytes of four integers; columns of a sum

#ifndef VEC_INTS
// The greatest |bf16| of n = 32 or 64 elements; as integers, so that infinities and NaN are the greatest.
MD_INLINE float v_top(const uint16_t *row, const uint32_t n) {
    vf best = v_set1(0.0f);
    for (uint32_t i = 0; i < n; i += 16) best = v_max_bits(best, v_abs(v_widen(row + i)));
    float lane[16];
    uint32_t top = 0;
    v_store(lane, best);
    for (int j = 0; j < 16; j++) top = md_f32_bits(lane[j]) > top ? md_f32_bits(lane[j]) : top;
    return md_f32_from_bits(top);
}

// 32 elements as 8 quads at x. Returns their sum: integers below 2^24, so exact.
MD_INLINE float v_ints(const uint16_t *row, float inverse, void *x) {
    vf magic = v_set1(MD_EXP_MAGIC);
    vf t0 = v_fma(v_widen(row), v_set1(inverse), magic), t1 = v_fma(v_widen(row + 16), v_set1(inverse), magic);
    v_store_ints(x, t0);
    v_store_ints((uint8_t *)x + 4 * INT_BYTES, t1);
    return v_sum(v_add(v_sub(t0, magic), v_sub(t1, magic)));
}
#endif

// One column's block of n = 32 or 64 elements. to: its first integers, unit and sum.
MD_INLINE void ints_of_block(const uint16_t *row, const uint32_t n, const md_ints *to, size_t columns) {
    float inverse;
    *to->unit = md_shared_unit(v_top(row, n), &inverse);
    uint8_t *x = to->x, quads[8 * INT_BYTES];
    for (uint32_t i = 0; i < n; i += INT_SUM) {
        // cppcheck-suppress legacyUninitvar // v_ints fills it
        to->sums[i / INT_SUM * columns] = v_ints(row + i, inverse, columns == 1 ? x : quads);
        for (int q = 0; q < 8; q++, x += columns * INT_BYTES)
            if (columns > 1) memcpy(x, quads + q * INT_BYTES, INT_BYTES);
    }
}

MD_INLINE void ints_of_columns(const uint16_t *rows, size_t row_stride, const uint32_t columns, const uint32_t n,
                               const md_ints *to) {
#ifdef VEC_INTS
    if (columns == 8) {
        v_ints_of_eight(rows, row_stride, n, to->x, to->unit, to->sums);
        return;
    }
#endif
    for (uint32_t c = 0; c < columns; c++) {
        const md_ints column = {(uint8_t *)to->x + (size_t)c * INT_BYTES, to->unit + c, to->sums + c};
        ints_of_block(rows + c * row_stride, n, &column, columns);
    }
}

MD_INLINE void ints_of_all(const uint16_t *rows, size_t row_stride, const uint32_t columns, uint32_t cols, md_ints to) {
    for (uint32_t at = 0; at + INT_BLOCK <= cols; at += INT_BLOCK, rows += INT_BLOCK) {
        ints_of_columns(rows, row_stride, columns, INT_BLOCK, &to);
        to.x = (uint8_t *)to.x + (size_t)INT_BLOCK / 4 * columns * INT_BYTES;
        to.unit += columns;
        to.sums += INT_BLOCK / INT_SUM * columns;
    }
    if (cols % INT_BLOCK) ints_of_columns(rows, row_stride, columns, INT_SUM, &to);
}

static void act_ints(const uint16_t *rows, size_t row_stride, uint32_t columns, uint32_t cols, const md_ints *to) {
    switch (columns) { // the two that matter most have constant addresses
    case 1: ints_of_all(rows, row_stride, 1, cols, *to); break;
    case 8: ints_of_all(rows, row_stride, 8, cols, *to); break;
    default: ints_of_all(rows, row_stride, columns, cols, *to); break;
    }
}

static void act_sums(const md_ints *ints, uint32_t columns, uint32_t cols, uint32_t group, float *sums) {
    const float *sum = ints->sums, *unit = ints->unit;
    if (group < INT_BLOCK) { // two groups share a unit
        for (uint32_t g = 0; g < cols / group; g++)
            for (uint32_t c = 0; c < columns; c++)
                sums[g * columns + c] = sum[g * columns + c] * unit[g / 2 * columns + c];
        return;
    }
    for (uint32_t g = 0; g < cols / group; g++, sums += columns)
        for (uint32_t at = 0; at < group; at += INT_BLOCK, sum += 2 * columns, unit += columns)
            for (uint32_t c = 0; c < columns; c++) {
                float block = (sum[c] + sum[columns + c]) * unit[c];
                sums[c] = at ? sums[c] + block : block;
            }
}
