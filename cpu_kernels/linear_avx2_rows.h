/* Few tokens: the template of the kernel that works straight from blocks, four rows at a time (linear_avx2.h). */
#ifndef LI_LINEAR_AVX2_ROWS_H
#define LI_LINEAR_AVX2_ROWS_H

#include "linear_avx2_scales.h"

enum { REGISTER_TOKENS = 4 };

/* Sums of neighbours, two vectors into one: 32-bit lanes, then 64-bit lanes. Of the vectors of four rows, a pair of blocks
 * each, the two steps make one vector with a lane per row and block. */
LI_AVX2_INLINE __m256i add_pairs(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
LI_AVX2_INLINE __m256i add_fours(__m256i a, __m256i b)
{
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* Sums of the two halves of blocks; only `first`, for whole blocks, where scales are theirs. */
typedef struct {
    __m256i first, second;
} two_sums;

LI_AVX2_INLINE two_sums dot(int type, const __m256i *u, const int16_t *p)
{
    const __m256i *x = (const __m256i *)(const void *)p;
    __m256i low = add_products(_mm256_madd_epi16(u[0], _mm256_loadu_si256(x)), u[1], _mm256_loadu_si256(x + 1));
    if (LI_FOR_AVX512 && !has_scales16(type)) { /* an addition less, but each waits for the one before */
        low = add_products(low, u[2], _mm256_loadu_si256(x + 2));
        return (two_sums){.first = add_products(low, u[3], _mm256_loadu_si256(x + 3))};
    }
    __m256i high = add_products(_mm256_madd_epi16(u[2], _mm256_loadu_si256(x + 2)), u[3], _mm256_loadu_si256(x + 3));
    return has_scales16(type) ? (two_sums){low, high} : (two_sums){.first = _mm256_add_epi32(low, high)};
}

LI_AVX2_INLINE two_sums two_sums_of(int both, __m256i (*add)(__m256i, __m256i), two_sums a, two_sums b)
{
    return (two_sums){add(a.first, b.first), both ? add(a.second, b.second) : a.second};
}

/* Takes rows 0 to 3 one after the other; what is in `two` after row 3 is the sums of all: of the first, or of both. */
LI_AVX2_INLINE void take_row(int both, int r, two_sums s, two_sums *one, two_sums *two)
{
    if (r % 2 == 0)
        *one = s;
    else if (r == 1)
        *two = two_sums_of(both, add_pairs, *one, s);
    else
        *two = two_sums_of(both, add_fours, *two, two_sums_of(both, add_pairs, *one, s));
}

LI_AVX2_INLINE __m256i load_ints(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* Of eight floats or int32 in slots, those of pair j: A in the lower half, B in the upper. */
LI_AVX2_INLINE __m256 floats_of_pair(const float *slots, int j)
{
    return _mm256_permutevar_ps(_mm256_loadu_ps(slots), _mm256_set1_epi32(j));
}
LI_AVX2_INLINE __m256i ints_of_pair(__m256i slots, int j)
{
    return _mm256_castps_si256(_mm256_permutevar_ps(_mm256_castsi256_ps(slots), _mm256_set1_epi32(j)));
}

/* The sums of linear.h from those of the unsigned values: offset and scales of 16 values put right. `slots` is where the
 * group's slots begin, j the pair in it. */
LI_AVX2_INLINE __m256i true_sums(int type, const pair_scales *w, two_sums s, const li_int_row *x, int64_t slots, int j)
{
    int bits = offset_bits(type);
    if (!has_scales16(type)) {
        if (bits < 0)
            return s.first;
        __m256i sum = _mm256_add_epi32(load_ints(x->low + slots), load_ints(x->high + slots));
        return _mm256_sub_epi32(s.first, ints_of_pair(_mm256_slli_epi32(sum, bits), j));
    }
    if (bits >= 0) {
        s.first = _mm256_sub_epi32(s.first, _mm256_slli_epi32(ints_of_pair(load_ints(x->low + slots), j), bits));
        s.second = _mm256_sub_epi32(s.second, _mm256_slli_epi32(ints_of_pair(load_ints(x->high + slots), j), bits));
    }
    return _mm256_add_epi32(_mm256_mullo_epi32(s.first, w->first), _mm256_mullo_epi32(s.second, w->second));
}

/* The pair's sums into a token's running lanes. */
LI_AVX2_INLINE __m256 add_pair(int type, int n_mins, const pair_scales *w, two_sums s, const li_int_row *x,
                               int64_t slots, int j, __m256 lanes)
{
    __m256 dx = floats_of_pair(x->dx + slots, j);
    __m256i isum = true_sums(type, w, s, x, slots, j);
    lanes = _mm256_fmadd_ps(_mm256_mul_ps(w->d, dx), _mm256_cvtepi32_ps(isum), lanes);
    if (n_mins == 1)
        lanes = _mm256_fmadd_ps(w->m, floats_of_pair(x->sum + slots, j), lanes);
    return lanes;
}

/* Pair j of the group at at[0 .. 3], whose values begin at p and slots at `slots`, for n_tokens. n_tokens is a constant up
 * to REGISTER_TOKENS or, where `many`, any number. */
LI_AVX2_INLINE void pair_tokens(int type, int n_mins, const uint8_t *const at[ROWS], int j, int has_b,
                                const pair_scales *w, int many, int n_tokens, const li_int_row *x, int64_t p,
                                int64_t slots, int slot_pair, __m256 *lanes)
{
    two_sums one[REGISTER_TOKENS], two[REGISTER_TOKENS];
    __m256i u[ROWS][4];
    if (!many) {
        LI_UNROLL_8
        for (int r = 0; r < ROWS; r++) {
            pair_of(type, at[r], j, has_b, u[0]);
            LI_UNROLL_8
            for (int t = 0; t < n_tokens; t++)
                take_row(has_scales16(type), r, dot(type, u[0], x[t].p + p), &one[t], &two[t]);
        }
        LI_UNROLL_8
        for (int t = 0; t < n_tokens; t++)
            lanes[t] = add_pair(type, n_mins, w, two[t], &x[t], slots, slot_pair, lanes[t]);
        return;
    }
    LI_UNROLL_8
    for (int r = 0; r < ROWS; r++)
        pair_of(type, at[r], j, has_b, u[r]);
    LI_NO_UNROLL
    for (int t = 0; t < n_tokens; t++) {
        LI_UNROLL_8
        for (int r = 0; r < ROWS; r++)
            take_row(has_scales16(type), r, dot(type, u[r], x[t].p + p), &one[0], &two[0]);
        lanes[t] = add_pair(type, n_mins, w, two[0], &x[t], slots, slot_pair, lanes[t]);
    }
}

/* -- rows -------------------------------------------------------------------------------------------------------------*/

/* A piece of rows is read as four streams, each a quarter of it: the hardware's prefetchers run further ahead on four
 * streams than on one. They start anew at every page of 4 KiB, and nothing has asked for a piece's first bytes: what comes
 * PREFETCH_BYTES later is asked for as well. Never faults, also beyond the matrix. */
enum { PREFETCH_BYTES = 512 };

LI_AVX2_INLINE void prefetch(const uint8_t *const at[ROWS], int distance, int n_bytes)
{
    LI_UNROLL_8
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < n_bytes; i += 64)
            __builtin_prefetch(at[r] + distance + i);
}

/* Four rows of blocks of 32. */
LI_AVX2_INLINE void rows_of_pairs(int type, int n_mins, int block_bytes, const li_matrix *w, const int64_t row[ROWS],
                                  int many, int n_tokens, const li_int_row *x, __m256 *lanes)
{
    const uint8_t *at[ROWS];
    int64_t n_blocks = w->n_in / 32;
    pair_scales s;
    for (int r = 0; r < ROWS; r++)
        at[r] = w->blocks + row[r] * w->row_bytes;
    for (int64_t b = 0; b + 2 <= n_blocks; b += 2) {
        prefetch(at, PREFETCH_BYTES, 2 * block_bytes);
        scales4(type, at, 1, &s.d, &s.m);
        pair_tokens(type, n_mins, at, 0, 1, &s, many, n_tokens, x, 32 * b, b / 8 * 8, (int)(b % 8 / 2), lanes);
        for (int r = 0; r < ROWS; r++)
            at[r] += 2 * block_bytes;
    }
    if (n_blocks % 2) {
        int64_t b = n_blocks - 1;
        scales4(type, at, 0, &s.d, &s.m);
        pair_tokens(type, n_mins, at, 0, 0, &s, many, n_tokens, x, 32 * b, b / 8 * 8, (int)(b % 8 / 2), lanes);
    }
}

/* Four rows of groups of 256 values; decoded by plain C where the type says so. */
LI_AVX2_INLINE void rows_of_groups(int type, int n_mins, const li_matrix *w, const int64_t row[ROWS], int many,
                                   int n_tokens, const li_int_row *x, __m256 *lanes)
{
    const li_type_info *t = li_type(w->type);
    int64_t n_blocks = w->n_in / 32;
    li_group rooms[ROWS];
    for (int64_t b = 0; b < n_blocks; b += 8) {
        int n = n_blocks - b < 8 ? (int)(n_blocks - b) : 8;
        const uint8_t *at[ROWS];
        pair_scales s[4];
        for (int r = 0; r < ROWS; r++)
            at[r] = group_at(type, t, w->blocks + row[r] * w->row_bytes, b, n, &rooms[r]);
        if (type >= 0)
            prefetch(at, PREFETCH_BYTES, group_bytes(type));
        group_scales(type, n_mins, at, s);
        LI_UNROLL_8
        for (int j = 0; j < 4; j++)
            pair_tokens(type, n_mins, at, j, 1, &s[j], many, n_tokens, x, 32 * b + 64 * j, b, j, lanes);
    }
}

LI_AVX2_INLINE void first_bytes_of(const li_matrix *w, const li_row_streams *streams)
{
    const uint8_t *at[ROWS];
    int64_t row[ROWS];
    li_rows_at(streams, 0, row);
    for (int r = 0; r < ROWS; r++)
        at[r] = w->blocks + row[r] * w->row_bytes;
    prefetch(at, 0, PREFETCH_BYTES);
}

/* The lanes of four rows, added up, into y for those of them in [row0, row1). */
LI_AVX2_INLINE void store_rows(const __m256 *lanes, int n_tokens, const int64_t row[ROWS], float *y, int64_t ldy,
                               int64_t row0, int64_t row1)
{
    for (int k = 0; k < n_tokens; k++) {
        float sums[ROWS];
        _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(lanes[k]), _mm256_extractf128_ps(lanes[k], 1)));
        for (int r = 0; r < ROWS; r++) {
            int64_t at = row[r];
            __asm__("" : "+r"(at)); /* else GCC copies this loop for each answer, 8 times */
            if (at >= row0 && at < row1)
                y[k * ldy + at] = sums[r];
        }
    }
}

LI_AVX2_INLINE void rows_kernel(int type, int n_mins, const li_matrix *w, const char *xq, int many, int n_tokens,
                                float *y, int64_t ldy, int64_t row0, int64_t row1)
{
    li_int_row x[LI_ROW_TOKENS];
    const li_row_streams streams = li_streams_of(w, row0, row1);
    int64_t stride = li_token_bytes(LI_KIND_INT, w->n_in), row[ROWS];
    if (n_mins < 0)
        n_mins = li_type(w->type)->n_mins;
    for (int k = 0; k < n_tokens; k++)
        x[k] = li_int_row_at(xq + k * stride, w->n_in);
    first_bytes_of(w, &streams);
    for (int64_t i = 0; i < streams.quarter; i++) {
        __m256 lanes[LI_ROW_TOKENS];
        li_rows_at(&streams, i, row);
        for (int k = 0; k < n_tokens; k++)
            lanes[k] = _mm256_setzero_ps();
        if (block_of_32_bytes(type))
            rows_of_pairs(type, n_mins, block_of_32_bytes(type), w, row, many, n_tokens, x, lanes);
        else
            rows_of_groups(type, n_mins, w, row, many, n_tokens, x, lanes);
        store_rows(lanes, n_tokens, row, y, ldy, row0, row1);
    }
}

#endif
