/* More tokens: 16 rows decoded into a tile, as a template. */
#ifndef LI_LINEAR_AVX2_TILES_H
#define LI_LINEAR_AVX2_TILES_H

#include <stddef.h>

#include "linear_avx2_types.h"

/* The slot's lane of s[r], block b of row r -> the scales of 8 rows in tile b < n. */
LI_AVX2_INLINE void store_scales(const __m256 s[8], int n, li_block_tile *tile, size_t field, int column)
{
    __m256i v[8];
    LI_UNROLL_8
    for (int r = 0; r < 8; r++)
        v[r] = _mm256_castps_si256(s[r]);
    transpose8(v);
    for (int b = 0; b < n; b++)
        _mm256_store_si256((__m256i *)(void *)((char *)&tile[b] + field + 4 * (size_t)column), v[li_slot(b)]);
}

/* The scales of 16 values of half `half` of the blocks of pair j, in all lanes of A and of B. */
LI_AVX2_INLINE __m256i pair_scale(__m128i bytes, int j, int half)
{
    __m128i both = _mm_shuffle_epi8(bytes, _mm_setr_epi8(
        (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + half),
        (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + half), (char)(4 * j + 2 + half),
        (char)(4 * j + 2 + half), (char)(4 * j + 2 + half), (char)(4 * j + 2 + half), (char)(4 * j + 2 + half),
        (char)(4 * j + 2 + half), (char)(4 * j + 2 + half), (char)(4 * j + 2 + half)));
    return _mm256_cvtepi8_epi16(both);
}

/* The true values q of a pair. */
LI_AVX2_INLINE void true_pair(int type, const uint8_t *group, int j, int has_b, __m256i *u)
{
    int bits = offset_bits(type);
    pair_of(type, group, j, has_b, u);
    if (bits >= 0)
        for (int k = 0; k < 4; k++)
            u[k] = _mm256_sub_epi16(u[k], _mm256_set1_epi16((short)(values_in_lane(type, k) << bits)));
    if (has_scales16(type)) {
        __m128i bytes = bytes16(type, group);
        for (int k = 0; k < 4; k++)
            u[k] = _mm256_mullo_epi16(u[k], pair_scale(bytes, j, k / 2));
    }
}

/* Q2_K's mins of 8 rows in 8 tiles. */
LI_AVX2_INLINE void store_mins(const uint8_t *const group[8], li_block_tile *tile, int column)
{
    __m256 halves[2][8];
    for (int r = 0; r < 8; r++) {
        __m256i first, second;
        slots_of_16(q2_k_min_bytes(group[r]), &first, &second);
        halves[0][r] = _mm256_cvtepi32_ps(first);
        halves[1][r] = _mm256_cvtepi32_ps(second);
    }
    for (int half = 0; half < 2; half++)
        store_scales(halves[half], 8, tile, offsetof(li_block_tile, mins[half]), column);
}

/* The group kind: all blocks of a group have the same D and M, and only the first tile gets them. */
LI_AVX2_INLINE void store_group_scales(int n_mins, const __m256 d[8], const __m256 m[8], li_block_tile *tile, int column)
{
    for (int r = 0; r < 8; r++) {
        tile->d[column + r] = _mm256_cvtss_f32(d[r]);
        if (n_mins == 2)
            tile->m[column + r] = _mm256_cvtss_f32(m[r]);
    }
}

LI_AVX2_INLINE void store_block_scales(int n_mins, const __m256 d[8], const __m256 m[8], int n, li_block_tile *tile,
                                       int column)
{
    store_scales(d, n, tile, offsetof(li_block_tile, d), column);
    if (n_mins == 1)
        store_scales(m, n, tile, offsetof(li_block_tile, m), column);
}

/* Columns column .. column+7 of the n tiles of one group, from 8 rows. */
LI_AVX2_INLINE void tile_group(int type, int n_mins, const uint8_t *const group[8], int n, li_block_tile *tile, int column)
{
    __m256 d[8], m[8];
    for (int r = 0; r < 8; r++)
        scales(type, group[r], n, &d[r], &m[r]);
    if (is_whole_group(type))
        store_group_scales(n_mins, d, m, tile, column);
    else
        store_block_scales(n_mins, d, m, n, tile, column);
    if (n_mins == 2)
        store_mins(group, tile, column);
    LI_UNROLL_8
    for (int j = 0; j < 4; j++) {
        __m256i u[8][4];
        int has_b = 2 * j + 1 < n;
        if (2 * j >= n)
            break;
        for (int r = 0; r < 8; r++)
            true_pair(type, group[r], j, has_b, u[r]);
        for (int k = 0; k < 4; k++) {
            __m256i v[8];
            LI_UNROLL_8
            for (int r = 0; r < 8; r++)
                v[r] = u[r][k];
            transpose8(v);
            for (int i = 0; i < 4; i++) {
                _mm256_store_si256((__m256i *)(void *)&tile[2 * j].q[4 * k + i][column], v[i]);
                if (has_b)
                    _mm256_store_si256((__m256i *)(void *)&tile[2 * j + 1].q[4 * k + i][column], v[i + 4]);
            }
        }
    }
}

/* 16 rows from row r on, of which `n_rows` exist; the last one stands in for those beyond. */
LI_AVX2_INLINE void tile_kernel(int type, int n_mins, const li_matrix *w, int64_t r, int n_rows, li_block_tile *tile)
{
    const li_type_info *t = li_type(w->type);
    int64_t n_blocks = w->n_in / 32;
    li_group rooms[8];
    if (n_mins < 0)
        n_mins = t->n_mins;
    for (int column = 0; column < LI_TILE_ROWS; column += 8)
        for (int64_t b = 0; b < n_blocks; b += 8) {
            int n = n_blocks - b < 8 ? (int)(n_blocks - b) : 8;
            const uint8_t *group[8];
            for (int i = 0; i < 8; i++) {
                int64_t row = r + (column + i < n_rows ? column + i : n_rows - 1);
                group[i] = group_at(type, t, w->blocks + row * w->row_bytes, b, n, &rooms[i]);
            }
            tile_group(type, n_mins, group, n, tile + b, column);
        }
}

#endif
