/* The two kernels of a block type; only the files that make them include this. */
#ifndef LI_LINEAR_AVX2_KERNELS_H
#define LI_LINEAR_AVX2_KERNELS_H

#include "linear_avx2.h"

#if LI_X86 /* on other machines there is no immintrin.h */

#include "linear_avx2_groups.h"
#include "linear_avx2_rows.h"
#include "linear_avx2_tiles.h"

#define LI_AVX2_ROWS(name, type, n_mins, t)                                                                           \
    static LI_AVX2 __attribute__((noinline)) void rows_##name##_##t(                                                  \
        const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy, int64_t row0, int64_t row1)          \
    {                                                                                                                 \
        rows_kernel(type, n_mins, w, xq, t == 0, t == 0 ? n_tokens : t, y, ldy, row0, row1);                          \
    }

#define LI_AVX2_KERNELS(name, type, n_mins)                                                                           \
    LI_AVX2_ROWS(name, type, n_mins, 0)                                                                               \
    LI_AVX2_ROWS(name, type, n_mins, 1)                                                                               \
    LI_AVX2_ROWS(name, type, n_mins, 2)                                                                               \
    LI_AVX2_ROWS(name, type, n_mins, 3)                                                                               \
    LI_AVX2_ROWS(name, type, n_mins, 4)                                                                               \
    static LI_AVX2 void rows_##name(const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy,          \
                                    int64_t row0, int64_t row1)                                                       \
    {                                                                                                                 \
        (n_tokens == 1   ? rows_##name##_1                                                                            \
         : n_tokens == 2 ? rows_##name##_2                                                                            \
         : n_tokens == 3 ? rows_##name##_3                                                                            \
         : n_tokens == 4 ? rows_##name##_4                                                                            \
                         : rows_##name##_0)(w, xq, n_tokens, y, ldy, row0, row1);                                     \
    }                                                                                                                 \
    LI_AVX2_TILE(name, type, n_mins)

/* Of a type of the group kind. */
#define LI_AVX2_GROUP_TOKENS(name, type, t)                                                                           \
    static LI_AVX2 __attribute__((noinline)) void group_##name##_##t(const uint8_t *const at[ROWS], int64_t b,        \
                                                                     const li_int_row *x, __m256 *lanes)              \
    {                                                                                                                 \
        group_tokens(type, at, b, t, x, lanes);                                                                       \
    }

#define LI_AVX2_GROUP_ROWS(name, type, t)                                                                             \
    static LI_AVX2 __attribute__((noinline)) void rows_##name##_##t(                                                  \
        const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy, int64_t row0, int64_t row1)          \
    {                                                                                                                 \
        groups_kernel(type, group_##name##_2, group_##name##_3, w, xq, t == 0,                                        \
                      t == 0 ? n_tokens : t, y, ldy, row0, row1);                                                     \
    }

#define LI_AVX2_GROUP_KERNELS(name, type, n_mins)                                                                     \
    LI_AVX2_GROUP_TOKENS(name, type, 2)                                                                               \
    LI_AVX2_GROUP_TOKENS(name, type, 3)                                                                               \
    LI_AVX2_GROUP_ROWS(name, type, 0)                                                                                 \
    LI_AVX2_GROUP_ROWS(name, type, 1)                                                                                 \
    static LI_AVX2 void rows_##name(const li_matrix *w, const char *xq, int n_tokens, float *y, int64_t ldy,          \
                                    int64_t row0, int64_t row1)                                                       \
    {                                                                                                                 \
        (n_tokens == 1 ? rows_##name##_1 : rows_##name##_0)(w, xq, n_tokens, y, ldy, row0, row1);                     \
    }                                                                                                                 \
    LI_AVX2_TILE(name, type, n_mins)

#define LI_AVX2_TILE(name, type, n_mins)                                                                              \
    static LI_AVX2 void tile_##name(const li_matrix *w, int64_t r, int n_rows, li_block_tile *tile)                   \
    {                                                                                                                 \
        tile_kernel(type, n_mins, w, r, n_rows, tile);                                                                \
    }                                                                                                                 \
    const li_avx2_kernels LI_KERNELS(name) = {rows_##name, tile_##name};

#endif
#endif
